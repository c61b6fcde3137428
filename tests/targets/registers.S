// The code that registers.c checks: one body, assembled several times. r_subject is probed, r_plain is not; each r_harm_*
// is r_plain with one thing spoilt in its midst, which registers.c must find.
//
// r_run(code, state) loads every register, flag and the red zone from *state, calls `code` on a stack of its own, and
// stores all of it back to *state. See struct state in registers.c.

#define RAX 0
#define FLAGS 128
#define STACK 136
#define MXCSR 144
#define X87 160
#define VECTORS 288
#define MASKS (VECTORS + 32 * 64)

// Every register goes into every other, the flags live from each instruction to the next, the red zone is read and
// written throughout; string instructions run forwards and backwards; the x87 and SSE registers compute.
.macro body harm=
    adc %rax, %rbx
    rcl $1, %rcx
    sbb %rdx, %rsi
    mov %rbx, -8(%rsp)
    setc -9(%rsp)
    seto -10(%rsp)
    cmovs %rdi, %rbp
    adc -128(%rsp), %r8
    rcr $3, %r9
    xor %r10, -120(%rsp)
    adc $0x7f, %r11
    lahf
    ror $5, %rax
    sub %r12, %r13
    jc 1f
    add %r14, %r15
    lea (%rax,%rcx,2), %r14
1:  inc %r10
    dec %r11
    setp -11(%rsp)
    sets -12(%rsp)
    \harm
    pushfq
    popq %rcx
    and $0xcd5, %ecx
    rol $17, %rcx
    xor %rcx, %rbp
    adc %rsi, -64(%rsp)
    mulq %r8
    imul %r9, %r12
    bt $7, %r13
    adc %rdx, %rbp
    xchg %rbx, %r11
    bswap %r10
    shld $9, %rax, %rdi
    jp 2f
    not %rsi
    neg %rdi
2:  movq %xmm3, %r15
    paddq %xmm1, %xmm2
    pxor %xmm15, %xmm0
    mulsd %xmm5, %xmm4
    fadd %st(2), %st
    fxch %st(3)
    fsin
    mov $3, %ecx
3:  adc %rcx, %rdx
    rol $7, %rdx
    loop 3b
    jrcxz 4f
    ud2
4:  lea r_buffer(%rip), %rdi
    lea r_source(%rip), %rsi
    mov $5, %ecx
    cld
    rep movsq
    cmp %rdx, %rax
    std
    sub $8, %rdi
    sub $8, %rsi
    movsb
    lodsb
    stosb
    adc %rax, -32(%rsp)
    setae -33(%rsp)
    xor %rsi, %rsi
    sub %r8, %r9
    pushq %rax
    adc %r9, %rax
    popq %rdi
    cmpxchg %rdi, -40(%rsp)
    bsf %r13, %rcx
    cmovz %r11, %rcx
    ja 5f
    cld
    ret
5:  stc
    sbb $1, %r11
    ret
.endm

    .text
    .balign 16
    .globl r_subject
    .type r_subject, @function
r_subject:
    body
    .size r_subject, . - r_subject

    .balign 16
    .globl r_plain
    .type r_plain, @function
r_plain:
    body
    .size r_plain, . - r_plain

.macro flip bit
    pushfq
    xorq $\bit, (%rsp)
    popfq
.endm

.macro harmed name, instruction:vararg
    .balign 16
    .globl r_harm_\name
    .type r_harm_\name, @function
r_harm_\name:
    body "\instruction"
    .size r_harm_\name, . - r_harm_\name
.endm

    harmed r11, xor $1, %r11b
    harmed carry, cmc
    harmed direction, flip 0x400
    harmed adjust, flip 0x10
    harmed overflow, flip 0x800
    harmed redzone, notb -128(%rsp)
    harmed below, notb -77(%rsp)
    harmed xmm, pcmpeqd %xmm14, %xmm14
    harmed x87, fchs
    harmed control, fldcw r_control(%rip)
    harmed mxcsr, ldmxcsr r_mxcsr(%rip)

    .balign 16
    .globl r_run
    .type r_run, @function
r_run:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    sub $24, %rsp
    stmxcsr (%rsp)
    fnstcw 8(%rsp)
    mov %rsp, r_stack(%rip)
    mov %rdi, r_target(%rip)
    mov %rsi, r_state(%rip)
    mov %rsi, %rax
    // vector registers, as many as there are
    cmpl $1, r_level(%rip)
    jb 1f
    je 2f
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqu64 VECTORS+64*\n(%rax), %zmm\n
    .endr
    .irp n,0,1,2,3,4,5,6,7
    kmovw MASKS+8*\n(%rax), %k\n
    .endr
    jmp 3f
2:  .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    vmovdqu VECTORS+64*\n(%rax), %ymm\n
    .endr
    jmp 3f
1:  .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movdqu VECTORS+64*\n(%rax), %xmm\n
    .endr
3:  ldmxcsr MXCSR(%rax)
    frstor X87(%rax)
    mov STACK(%rax), %rsp
    // the return address, and above it the flags, which are taken from there
    lea r_back(%rip), %rbx
    mov %rbx, (%rsp)
    pushq FLAGS(%rax)
    // the red zone was written over by that: its word comes back below
    mov -8(%rsp), %rbx
    mov 8*1(%rax), %rcx
    mov 8*2(%rax), %rdx
    mov 8*5(%rax), %rbp
    mov 8*6(%rax), %rsi
    mov 8*7(%rax), %rdi
    mov 8*8(%rax), %r8
    mov 8*9(%rax), %r9
    mov 8*10(%rax), %r10
    mov 8*11(%rax), %r11
    mov 8*12(%rax), %r12
    mov 8*13(%rax), %r13
    mov 8*14(%rax), %r14
    mov 8*15(%rax), %r15
    mov 8*3(%rax), %rbx
    popfq
    movq r_top(%rip), %rax
    mov %rax, -8(%rsp)
    mov r_state(%rip), %rax
    mov RAX(%rax), %rax
    jmp *r_target(%rip)

r_back:
    mov %rax, r_saved(%rip)
    mov r_state(%rip), %rax
    mov %rcx, 8*1(%rax)
    mov %rdx, 8*2(%rax)
    mov %rbx, 8*3(%rax)
    mov %rsp, 8*4(%rax)
    mov %rbp, 8*5(%rax)
    mov %rsi, 8*6(%rax)
    mov %rdi, 8*7(%rax)
    mov %r8, 8*8(%rax)
    mov %r9, 8*9(%rax)
    mov %r10, 8*10(%rax)
    mov %r11, 8*11(%rax)
    mov %r12, 8*12(%rax)
    mov %r13, 8*13(%rax)
    mov %r14, 8*14(%rax)
    mov %r15, 8*15(%rax)
    mov r_saved(%rip), %rcx
    mov %rcx, RAX(%rax)
    mov r_stack(%rip), %rsp
    pushfq
    popq FLAGS(%rax)
    cld
    cmpl $1, r_level(%rip)
    jb 1f
    je 2f
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqu64 %zmm\n, VECTORS+64*\n(%rax)
    .endr
    .irp n,0,1,2,3,4,5,6,7
    kmovw %k\n, MASKS+8*\n(%rax)
    .endr
    vzeroupper
    jmp 3f
2:  .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    vmovdqu %ymm\n, VECTORS+64*\n(%rax)
    .endr
    vzeroupper
    jmp 3f
1:  .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movdqu %xmm\n, VECTORS+64*\n(%rax)
    .endr
3:  stmxcsr MXCSR(%rax)
    fnsave X87(%rax)
    ldmxcsr (%rsp)
    fldcw 8(%rsp)
    add $24, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret
    .size r_run, . - r_run

    .data
    .balign 16
    .globl r_level, r_buffer, r_source, r_top
r_stack:  .quad 0
r_target: .quad 0
r_state:  .quad 0
r_saved:  .quad 0
r_top:    .quad 0
r_level:  .long 0
r_control: .long 0x0c7f
r_mxcsr:  .long 0x5fbf
r_buffer: .fill 128
r_source: .ascii "forty bytes that are copied to and fro, and back."

    .section .note.GNU-stack, "", @progbits
