# A restartable sequence's descriptor, and a function of hand-written assembler without type and size.
        .section __rseq_cs, "aw"
        .balign 32
        .long 0, 0
        .quad 1f, 2f - 1f, 4f

        .text
        .globl fixture_rseq
        .type fixture_rseq, @function
fixture_rseq:
1:      nop
        nop
        nop
2:      ret
        .long 0x53053053
4:      jmp 2b
        .size fixture_rseq, . - fixture_rseq

        .globl fixture_untyped
fixture_untyped:
        ret
        int3
        int3
        int3

        .globl fixture_sizeless
        .type fixture_sizeless, @function
fixture_sizeless:
        xorl %eax, %eax
        ret
        .section .note.GNU-stack, "", @progbits
