# What compilers and hand-written assembler leave in symbol tables, independent of the compiler that builds this: a
# restartable sequence's descriptor, functions without type or size, a .cold part.
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
# A function with a part that the compiler moved away, as gcc -O2 writes it.
        .globl fixture_split
        .type fixture_split, @function
fixture_split:
        testl %edi, %edi
        js fixture_split.cold
        leal (%rdi, %rdi), %eax
        ret
        .size fixture_split, . - fixture_split

        .section .text.unlikely, "ax", @progbits
        .type fixture_split.cold, @function
fixture_split.cold:
        movl $-1, %eax
        ret
        .size fixture_split.cold, . - fixture_split.cold

        .section .note.GNU-stack, "", @progbits
