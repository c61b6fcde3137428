# A static function and its .cold part, of the same names as those of another file.
        .file "fixture_twin_b.c"
        .text
        .type twin, @function
twin:
        testl %edi, %edi
        js twin.cold
        ret
        .size twin, . - twin
        .globl fixture_twin_b
        .type fixture_twin_b, @function
fixture_twin_b:
        jmp twin
        .size fixture_twin_b, . - fixture_twin_b

        .section .text.unlikely, "ax", @progbits
        .type twin.cold, @function
twin.cold:
        nop
        ret
        .size twin.cold, . - twin.cold
        .section .note.GNU-stack, "", @progbits
