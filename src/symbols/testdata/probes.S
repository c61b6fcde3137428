/* Notes of statically defined probes, as sys/sdt.h writes them, and some that are none. */
  .text
  .globl probed
  .type probed, @function
probed:
.Lfirst:
  nop
  mov %edi, %eax
.Lsecond:
  nop
  ret
  .size probed, . - probed

  .data
  .globl shared_object
  .type shared_object, @object
  .size shared_object, 8
shared_object:
  .quad 17
  .type lone, @object
  .size lone, 4
lone:
  .long 1
  .type semaphore, @object
  .size semaphore, 2
semaphore:
  .short 0

  .macro note type, owner, site, semaphore, provider, name, arguments
  .pushsection .note.stapsdt,"?","note"
  .balign 4
  .4byte 2f-1f, 4f-3f, \type
1: .asciz "\owner"
2: .balign 4
3: .8byte \site, _.stapsdt.base, \semaphore
  .asciz "\provider"
  .asciz "\name"
  .asciz "\arguments"
4: .balign 4
  .popsection
  .endm

  .section .stapsdt.base,"aG","progbits",.stapsdt.base,comdat
  .weak _.stapsdt.base
  .hidden _.stapsdt.base
_.stapsdt.base: .space 1
  .size _.stapsdt.base, 1
  .text

  note 3, stapsdt, .Lfirst, semaphore, fixture, request__start, "-4@%edi 8@shared_object(%rip)"
  note 4, stapsdt, .Lfirst, 0, fixture, of_another_type, ""
  note 3, other, .Lfirst, 0, fixture, of_another_owner, ""
  note 3, stapsdt, .Lsecond, 0, fixture, done, ""
  .section .note.GNU-stack,"",@progbits
