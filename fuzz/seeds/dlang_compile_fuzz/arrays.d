Bint x[10]; string names[int]; self int depth; this int64_t t;
BEGIN { x[3] = 4; names[1] = "one"; a["k", 1] = x[3]++; self->depth = a["k", 1]; this->t = timestamp; exit(x[11]); }
