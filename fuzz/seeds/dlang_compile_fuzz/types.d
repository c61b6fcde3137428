Btypedef unsigned long long ull; extern int (*fp)(int, char *[], ...); extern const volatile char *const *q; struct fwd; struct list { struct list *next; int (*op)(struct fwd *); } ;
int g[3][4]; signed char c; long double ld; _Bool b; void v; float f; self string key; this struct list l; unsigned int bits : 3;
BEGIN { trace(sizeof (struct list [3])); trace(g[1][2]); trace((ull)(uintptr_t)q); }
