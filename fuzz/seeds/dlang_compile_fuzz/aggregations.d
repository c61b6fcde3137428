Bpid$target:libc.so.6:malloc:entry { @[probefunc, arg0] = count(); @s = sum(arg0); @a = avg(arg0); @d = stddev(arg0); }
pid$target:libc.so.6:malloc:return { @q = quantize(arg1); @l = lquantize(arg1, 0, 100, 10); @ll = llquantize(arg1, 10, 0, 6, 20); @m = min(arg1); @x = max(arg1); }
END { trunc(@, 5); normalize(@s, 10); denormalize(@s); clear(@a); printa("%5s %@8d\n", @); printa("%@d %@d", @m, @x); }
