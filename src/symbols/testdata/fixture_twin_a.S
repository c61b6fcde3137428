# A static function and its .cold part, of the same names as those of another file.
        .file "fixture_twin_a.c"
        .text
        .type twin, @function
twin:
        testl %edi, %edi
        js twin.cold
        ret
        .size twin, . - twin
        .globl fixture_twin_a
        .type fixture_twin_a, @function
fixture_twin_a:
        jmp twin
        .size fixture_twin_a, . - fixture_twin_a

        .section .text.unlikely, "ax", @progbits
        .type twin.cold, @function
twin.cold:
        nop
        ret
        .size twin.cold, . - twin.cold
        .section .note.GNU-stack, "", @progbits
