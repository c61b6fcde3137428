BBEGIN { s = strjoin("a", lltostr(-12, 16)); trace(strlen(s)); trace(substr(s, -2, 1)); trace(strtok("a,b", ",")); trace(strtok(NULL, ","));
 trace(index("abc", "c")); trace(rindex("abc", "c")); trace(strchr("abc", 'b')); trace(strrchr("abc", 'b')); trace(strstr("abc", "bc")); trace(basename("/a/b"));
 trace(dirname("/a/b")); trace(cleanpath("/a/../b")); trace(toupper("x")); trace(strtoll("0x1f")); trace(json("{\"a\":[1,2]}", "a[1]")); trace(inet_ntoa6(NULL)); trace("\t\x41\101\"" ); }
