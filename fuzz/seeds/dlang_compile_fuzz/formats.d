BBEGIN { printf("%d %i %u %x %X %o %c %s %S %p %a %A %k %y %Y %wc %%", 1, 2, 3, 4, 5, 6, 'c', "s", "S", 8, 9, 10, 11, 12, 13, 14); }
BEGIN { printf("%-10.3s|%+5d|% d|%#x|%05d|%'d|%*d|%.*s|%hd|%hhd|%ld|%lld|%zd|%td|%jd", "abc", 1, 2, 3, 4, 5000, 6, 7, 2, "xy", 8, 9, 10, 11, 12, 13, 14); }
BEGIN { printf("%f %e %E %g %G %5.2f", 1, 2, 3, 4, 5, 6); printa("%@u %@x %-20k%@#o\n", @a); printa(@a); @a[stack()] = count(); }
BEGIN { printf("%"); printf("%q", 1); printf("%d"); printf("x", 1); printf("%d", "s"); printf("%s", 1); }
