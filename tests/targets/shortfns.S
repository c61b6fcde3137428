// Functions as short as they get, with no padding between them, each with a symbol of its own: a tracer must patch
// them exactly or refuse them, and never damage the neighbour.

    .text
    .balign 16
#define FUNCTION(name) .globl name; .type name, @function; name:
#define END(name) .size name, . - name

FUNCTION(s_ret)             ret
END(s_ret)
FUNCTION(s_mov_ret)         mov %rdi, %rax ; ret
END(s_mov_ret)
FUNCTION(s_ret_again)       ret
END(s_ret_again)
FUNCTION(s_xor_ret)         xor %eax, %eax ; ret
END(s_xor_ret)
FUNCTION(s_lea_ret)         lea 1(%rdi), %rax ; ret
END(s_lea_ret)
FUNCTION(s_push_pop)        push %rbx ; mov %rdi, %rbx ; mov %rbx, %rax ; pop %rbx ; ret
END(s_push_pop)
FUNCTION(s_jump_short)      jmp s_lea_ret
END(s_jump_short)
FUNCTION(s_branch_to_second) test %rdi, %rdi
1:                          dec %rdi ; jg 1b ; mov %rdi, %rax ; ret
END(s_branch_to_second)
FUNCTION(s_endbr_ret)       endbr64 ; ret
END(s_endbr_ret)
FUNCTION(s_endbr_mov_ret)   endbr64 ; mov %rdi, %rax ; ret
END(s_endbr_mov_ret)
FUNCTION(s_nop5_ret)        nopl 0(%rax,%rax,1) ; ret
END(s_nop5_ret)
FUNCTION(s_mov32_ret)       mov $7, %eax ; ret
END(s_mov32_ret)
// One function inside another: two symbols, and a branch from the first into the second.
FUNCTION(s_outer)           mov %rdi, %rax
FUNCTION(s_inner)           inc %rax ; ret
END(s_outer)
END(s_inner)
FUNCTION(s_rep_ret)         rep ; ret
END(s_rep_ret)
FUNCTION(s_flags)           cmp %rsi, %rdi ; setb %al ; movzbl %al, %eax ; ret
END(s_flags)
FUNCTION(s_last)            ret
END(s_last)

    .section .note.GNU-stack, "", @progbits
