BBEGIN /$1 == 1 && $$2 == "x" && $target/ { trace($$3); trace($pid + $ppid + $uid); exit($0 == "" ? $egid : $9); }
