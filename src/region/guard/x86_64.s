# Arguments: rdi, rsi, rdx. Results: the fault (0 for none) in rax, the value in rdx. On this
# processor plain loads acquire and plain stores release.
.pushsection .text.forebay_guard, "ax", @progbits
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
    cmp rdx, 16
    jb 4f
    cmp rdx, 2048
    jae 7f
    # The last 16 bytes are copied separately: they may overlap the ones before.
    movups xmm4, [rsi + rdx - 16]
    lea r8, [rdi + rdx - 16]
    sub rdx, 64
    jbe 3f
2:
    movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups xmm2, [rsi + 32]
    movups xmm3, [rsi + 48]
    movups [rdi], xmm0
    movups [rdi + 16], xmm1
    movups [rdi + 32], xmm2
    movups [rdi + 48], xmm3
    add rsi, 64
    add rdi, 64
    sub rdx, 64
    ja 2b
3:
    cmp rdi, r8
    jae 5f
    movups xmm0, [rsi]
    movups [rdi], xmm0
    add rsi, 16
    add rdi, 16
    jmp 3b
5:
    movups [r8], xmm4
    xor eax, eax
    ret
4:
    cmp rdx, 8
    jb 6f
    mov rax, [rsi]
    mov rcx, [rsi + rdx - 8]
    mov [rdi], rax
    mov [rdi + rdx - 8], rcx
    xor eax, eax
    ret
6:
    test rdx, rdx
    jz 8f
    movzx eax, byte ptr [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    dec rdx
    jmp 6b
7:
    mov rcx, rdx
    rep movsb
8:
    xor eax, eax
    ret

.p2align 5
forebay_guard_touch:
    movzx eax, byte ptr [rdi]
    add rdi, {page}
    and rdi, -{page}
    cmp rdi, rsi
    jbe forebay_guard_touch
    xor eax, eax
    ret

.p2align 5
forebay_guard_load_words:
    xor ecx, ecx
2:
    cmp rcx, rdx
    jae 3f
    mov eax, [rsi + 4 * rcx]
    mov [rdi + 4 * rcx], eax
    inc rcx
    jmp 2b
3:
    xor eax, eax
    ret

.p2align 5
forebay_guard_store_words:
    sub rdx, 1
    jb 3f
2:
    mov eax, [rsi + 4 * rdx]
    mov [rdi + 4 * rdx], eax
    sub rdx, 1
    jae 2b
3:
    xor eax, eax
    ret

.p2align 4
forebay_guard_load_u32:
    mov edx, [rdi]
    xor eax, eax
    ret

.p2align 4
forebay_guard_load_u64:
    mov rdx, [rdi]
    xor eax, eax
    ret

.p2align 4
forebay_guard_store_u64:
    mov [rdi], rsi
    xor eax, eax
    ret

.p2align 4
forebay_guard_add_u32:
    lock xadd [rdi], esi
    mov edx, esi
    xor eax, eax
    ret

.p2align 4
forebay_guard_exchange_u64:
    mov rax, rsi
    lock cmpxchg [rdi], rdx
    mov rdx, rax
    xor eax, eax
forebay_guard_end:
    ret
.popsection
