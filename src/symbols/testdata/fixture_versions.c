// Two versions of one function, as memcpy has them in glibc.

int versioned_old(int n) { return n + 1; }
int versioned_new(int n) { return n + 2; }
__asm__(".symver versioned_old, fixture_versioned@FIXTURE_1");
__asm__(".symver versioned_new, fixture_versioned@@FIXTURE_2");
