// Calls an IFUNC of another library through its PLT.

int fixture_outside(int n);
int caller_call(int n) { return fixture_outside(n); }
