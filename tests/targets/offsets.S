// Functions in assembler for offsets.c: every kind of instruction that a probe can be laid over, at the places that are
// awkward: loops of two bytes, calls in the midst, straight code longer than a window, operands relative to the program
// counter.

    .text
#define FUNCTION(name) .globl name; .type name, @function; name:
#define END(name) .size name, . - name

    .balign 16
// A loop around two bytes.
FUNCTION(o_loop)
    xor %eax, %eax
1:  inc %eax
    dec %rdi
    jnz 1b
    ret
END(o_loop)

    .balign 16
// loop and jrcxz.
FUNCTION(o_counted)
    mov %rdi, %rcx
    xor %eax, %eax
    jrcxz 2f
1:  add %rcx, %rax
    loop 1b
2:  ret
END(o_counted)

    .balign 16
// Flags, and registers that nobody may touch, live from each instruction to the next.
FUNCTION(o_straight)
    mov %rdi, %rax
    mov %rdi, %r10
    mov %rdi, %r11
    stc
    adc $1, %r10
    adc $2, %r11
    rcl $1, %rax
    rcl $1, %r10
    rcr $3, %r11
    lea 5(%rax,%r10,2), %rax
    sub %r11, %rax
    sbb %r10, %rax
    movq %rax, -8(%rsp)
    movq %r10, -16(%rsp)
    xorl %eax, %eax
    add $0x7fffffff, %eax
    inc %eax
    seto %al
    movzbl %al, %eax
    add -8(%rsp), %rax
    xor -16(%rsp), %rax
    imul $0x1234567, %rax, %rax
    rol $13, %rax
    xor o_table(%rip), %rax
    cmp %rdi, %rax
    cmovb %rdi, %rax
    setb %cl
    movzbl %cl, %ecx
    add %rcx, %rax
    bswap %rax
    lea o_table(%rip), %rdx
    xor 8(%rdx), %rax
    pushq %rax
    popq %rax
    pushfq
    popq %rcx
    and $0x8d5, %ecx
    add %rcx, %rax
    nopw 0(%rax,%rax,1)
    not %rax
    neg %rax
    ret
END(o_straight)

    .balign 16
// Calls: direct, through a register, through memory; one right behind another.
FUNCTION(o_calls)
    push %rbx
    mov %rdi, %rbx
    call o_leaf
    mov %rax, %rdi
    lea o_leaf(%rip), %rax
    call *%rax
    mov %rax, %rdi
    call *o_pointer(%rip)
    add %rbx, %rax
    pop %rbx
    ret
END(o_calls)

    .balign 16
FUNCTION(o_leaf)
    lea 1(%rdi), %rax
    ret
END(o_leaf)

    .balign 16
// Two ways to one ret, and a jump to the function's second instruction.
FUNCTION(o_branches)
    mov %rdi, %rax
1:  test $1, %al
    jz 2f
    dec %rax
    jmp 1b
2:  test $2, %al
    jnz 3f
    shr $1, %rax
3:  ret
END(o_branches)

    .balign 16
// A jump out of the function.
FUNCTION(o_tail)
    test $1, %dil
    jz o_leaf
    add $2, %rdi
    jmp o_leaf
END(o_tail)

    .section .data.rel.ro, "aw", @progbits
    .balign 8
o_pointer:
    .quad o_leaf
    .section .rodata
    .balign 8
o_table:
    .quad 0x123456789abcdef, 0xfedcba9876543210

    .section .note.GNU-stack, "", @progbits
