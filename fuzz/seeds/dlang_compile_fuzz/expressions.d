BBEGIN { x = 1 + 2 * 3 / 4 % 5 << 6 >> 7 & 8 | 9 ^ 10; x += -x ? !x : ~x; x = (y = 3, ++y, y--); x <<= 2; z = x == y && y != x || (x ^^ y) ; trace((char)x); trace((uint8_t)-1); trace(*(int *)0x1000);
 trace(sizeof (int)); trace(0x7fffffffffffffffLL + 017u - 'ab'); trace(x < y ? "a" : "b"); if (x) { trace(1); } else { trace(2); } }
