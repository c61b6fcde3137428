B#pragma D option destructive
tick-1s /execname == "x" && pid != $target || !uid/ { system("echo %d", pid); raise(9); stop(); chill(100); copyoutstr("x", arg0, 2); freopen("f%d", 1); ftruncate(); setopt("quiet"); }
pid$target::f:entry { self->spec = speculation(); speculate(self->spec); trace(1); }
pid$target::f:return /self->spec/ { commit(self->spec); discard(self->spec + 1); bcopy(&x, &y, 4); copyinto(arg0, 4, p); printf("%s", stringof(copyin(arg0, 8))); ustack(5, 100); }
