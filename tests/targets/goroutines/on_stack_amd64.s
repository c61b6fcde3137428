// onStack has its arguments on the stack, and a frame that makes it check that.

#include "textflag.h"

TEXT ·onStack(SB), 0, $200-80
	MOVQ a+0(FP), AX
	ADDQ i+64(FP), AX
	MOVQ AX, ret+72(FP)
	RET
