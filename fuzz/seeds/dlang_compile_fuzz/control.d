B#!/usr/sbin/dtrace -qs
# 12 "other.d" 1
#line 7 "third.d"
#ident "x"
/* comment */ // another
BEGIN { trace(`kernel); trace(mod`sym); trace(curthread->t); trace(args[0]->x); trace(uregs[R_RAX]); self->a[1] = 2; }
