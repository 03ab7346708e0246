// Arguments: x0, x1, x2. Results: the fault (0 for none) in x0, the value in x1. The return address
// stays in x30.
.pushsection .text.forebay_guard, "ax", %progbits
.globl forebay_guard_begin, forebay_guard_end, forebay_guard_copy, forebay_guard_touch
.globl forebay_guard_load_words, forebay_guard_store_words, forebay_guard_load_u32
.globl forebay_guard_load_u64, forebay_guard_store_u64, forebay_guard_add_u32
.globl forebay_guard_exchange_u64
.hidden forebay_guard_begin, forebay_guard_end, forebay_guard_copy, forebay_guard_touch
.hidden forebay_guard_load_words, forebay_guard_store_words, forebay_guard_load_u32
.hidden forebay_guard_load_u64, forebay_guard_store_u64, forebay_guard_add_u32
.hidden forebay_guard_exchange_u64

.p2align 6
forebay_guard_begin:
forebay_guard_copy:
    subs x2, x2, #64
    b.lo 3f
2:
    ldp x3, x4, [x1]
    ldp x5, x6, [x1, #16]
    ldp x7, x8, [x1, #32]
    ldp x9, x10, [x1, #48]
    stp x3, x4, [x0]
    stp x5, x6, [x0, #16]
    stp x7, x8, [x0, #32]
    stp x9, x10, [x0, #48]
    add x1, x1, #64
    add x0, x0, #64
    subs x2, x2, #64
    b.hs 2b
3:
    adds x2, x2, #56
    b.mi 5f
4:
    ldr x3, [x1], #8
    str x3, [x0], #8
    subs x2, x2, #8
    b.pl 4b
5:
    adds x2, x2, #8
    b.eq 7f
6:
    ldrb w3, [x1], #1
    strb w3, [x0], #1
    subs x2, x2, #1
    b.ne 6b
7:
    mov x0, #0
    ret

.p2align 4
forebay_guard_touch:
    ldrb w3, [x0]
    add x0, x0, #{page}
    and x0, x0, #-{page}
    cmp x0, x1
    b.ls forebay_guard_touch
    mov x0, #0
    ret

.p2align 4
forebay_guard_load_words:
    cbz x2, 3f
2:
    ldr w3, [x1], #4
    str w3, [x0], #4
    subs x2, x2, #1
    b.ne 2b
3:
    mov x0, #0
    ret

.p2align 4
forebay_guard_store_words:
    add x0, x0, x2, lsl #2
    add x1, x1, x2, lsl #2
    cbz x2, 3f
2:
    ldr w3, [x1, #-4]!
    sub x0, x0, #4
    stlr w3, [x0]
    subs x2, x2, #1
    b.ne 2b
3:
    mov x0, #0
    ret

.p2align 4
forebay_guard_load_u32:
    ldar w1, [x0]
    mov x0, #0
    ret

.p2align 4
forebay_guard_load_u64:
    ldar x1, [x0]
    mov x0, #0
    ret

.p2align 4
forebay_guard_store_u64:
    stlr x1, [x0]
    mov x0, #0
    ret

.p2align 4
forebay_guard_add_u32:
    mov w2, w1
2:
    ldaxr w1, [x0]
    add w3, w1, w2
    stlxr w4, w3, [x0]
    cbnz w4, 2b
    mov x0, #0
    ret

.p2align 4
forebay_guard_exchange_u64:
    mov x3, x1
2:
    ldaxr x1, [x0]
    cmp x1, x3
    b.ne 3f
    stlxr w4, x2, [x0]
    cbnz w4, 2b
3:
    mov x0, #0
forebay_guard_end:
    ret
.popsection
