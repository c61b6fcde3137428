Bstruct point { int x; short y : 3; unsigned z : 29; union { char c[8]; double d; } u; };
typedef struct point point_t; enum colour { RED, GREEN = 5, BLUE };
BEGIN { p = (point_t *)alloca(sizeof(point_t)); p->x = BLUE; p->y = -1; p->u.c[2] = 'x'; print(*p); trace(offsetof(struct point, u)); tracemem(p, 16, 8); }
