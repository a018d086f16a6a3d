// The calls that only jemalloc, tcmalloc or mimalloc has, found at run time: the program is built without them.
#include "random_calls.h"

#include <dlfcn.h>

#define FIND(name) (*(void **)&name = dlsym(RTLD_DEFAULT, #name))

static void *(*mallocx)(size_t, int);
static void *(*rallocx)(void *, size_t, int);
static size_t (*xallocx)(void *, size_t, size_t, int);
static void (*dallocx)(void *, int);
static void (*sdallocx)(void *, size_t, int);

enum { ALIGN_64 = 6, ZERO = 0x40 };

static void moves(struct block *block, const char *site, void *memory, size_t size)
{
    block_dies(block);
    block_lives(block, site, memory, size, FROM_MALLOC);
}

SITE void site_mallocx(struct block *block, size_t size, int flags)
{
    void *memory = mallocx(size, flags);
    AFTER_CALL();
    block_lives(block, "site_mallocx", memory, size, FROM_MALLOC);
}

SITE void site_rallocx(struct block *block, size_t size)
{
    void *memory = rallocx(block->memory, size, 0);
    AFTER_CALL();
    moves(block, "site_rallocx", memory, size);
}

// What it could not grow or shrink in place stays as it was.
SITE void site_xallocx(struct block *block, size_t size, size_t extra)
{
    size_t usable = xallocx(block->memory, size, extra, 0);
    AFTER_CALL();
    if (usable >= size)
        moves(block, "site_xallocx", block->memory, usable < size + extra ? usable : size + extra);
}

static void jemalloc_fill(struct block *block, unsigned choice, size_t size)
{
    site_mallocx(block, size, choice % 2 ? ALIGN_64 | ZERO : 0);
}

static void jemalloc_change(struct block *block, unsigned choice, size_t size)
{
    if (choice % 3 == 0)
        site_rallocx(block, size);
    else
        site_xallocx(block, choice % 3 == 1 ? block->size + 1 : size, choice % 64);
}

static void jemalloc_free(struct block *block, unsigned choice)
{
    // The size class of a block with an alignment is not that of its size alone.
    bool plain = strcmp(block->site, "site_malloc") == 0 || strcmp(block->site, "site_rallocx") == 0;
    if (plain && choice % 2 && block->size > 0)
        sdallocx(block->memory, block->size, 0);
    else
        dallocx(block->memory, 0);
}

static void *(*tc_malloc_skip_new_handler)(size_t);
static void *(*tc_memalign)(size_t, size_t);
static void *(*pvalloc_here)(size_t);
static void (*tc_free)(void *);

SITE void site_skip_new_handler(struct block *block, size_t size)
{
    void *memory = tc_malloc_skip_new_handler(size);
    AFTER_CALL();
    block_lives(block, "site_skip_new_handler", memory, size, FROM_MALLOC);
}

SITE void site_tc_memalign(struct block *block, size_t size)
{
    void *memory = tc_memalign(512, size);
    AFTER_CALL();
    block_lives(block, "site_tc_memalign", memory, size, FROM_MALLOC);
}

SITE void site_pvalloc(struct block *block, size_t size)
{
    void *memory = pvalloc_here(size);
    AFTER_CALL();
    block_lives(block, "site_pvalloc", memory, size, FROM_MALLOC);
}

static void tcmalloc_fill(struct block *block, unsigned choice, size_t size)
{
    switch (choice % 3) {
    case 0: site_skip_new_handler(block, size); break;
    case 1: site_tc_memalign(block, size); break;
    default: site_pvalloc(block, size); break;
    }
}

SITE void site_own_realloc(struct block *block, size_t size)
{
    void *memory = realloc(block->memory, 3 * size);
    AFTER_CALL();
    moves(block, "site_own_realloc", memory, 3 * size);
}

static void tcmalloc_change(struct block *block, unsigned choice, size_t size)
{
    (void)choice;
    site_own_realloc(block, size);
}

static void tcmalloc_free(struct block *block, unsigned choice)
{
    (void)choice;
    tc_free(block->memory);
}

static void *(*mi_malloc_small)(size_t);
static void *(*mi_zalloc)(size_t);
static void *(*mi_mallocn)(size_t, size_t);
static void *(*mi_malloc_aligned)(size_t, size_t);
static void *(*mi_calloc_aligned)(size_t, size_t, size_t);
static void *(*mi_new_n)(size_t, size_t);
static void *(*mi_reallocn)(void *, size_t, size_t);
static void *(*mi_reallocf)(void *, size_t);
static void *(*mi_recalloc)(void *, size_t, size_t);
static void *(*mi_realloc_aligned)(void *, size_t, size_t);
static void *(*mi_expand)(void *, size_t);
static void (*mi_free)(void *);
static void (*mi_free_size)(void *, size_t);

#define FILL(site, bytes, call)                                  \
    SITE void site(struct block *block, size_t size)             \
    {                                                            \
        void *memory = call;                                     \
        AFTER_CALL();                                            \
        block_lives(block, #site, memory, bytes, FROM_MALLOC);   \
    }

FILL(site_mi_malloc_small, size % 1000, mi_malloc_small(size % 1000))
FILL(site_mi_zalloc, size, mi_zalloc(size))
FILL(site_mi_mallocn, 3 * size, mi_mallocn(3, size))
FILL(site_mi_malloc_aligned, size, mi_malloc_aligned(size, 256))
FILL(site_mi_calloc_aligned, 2 * size, mi_calloc_aligned(2, size, 64))
FILL(site_mi_new_n, 4 * size, mi_new_n(4, size))
FILL(site_mi_pvalloc, size, pvalloc_here(size))

static void mimalloc_fill(struct block *block, unsigned choice, size_t size)
{
    switch (choice % 7) {
    case 0: site_mi_malloc_small(block, size); break;
    case 1: site_mi_zalloc(block, size); break;
    case 2: site_mi_mallocn(block, size); break;
    case 3: site_mi_malloc_aligned(block, size); break;
    case 4: site_mi_calloc_aligned(block, size); break;
    case 5: site_mi_new_n(block, size); break;
    default: site_mi_pvalloc(block, size); break;
    }
}

static volatile size_t impossible = (size_t)-1 / 4;

// Fails now and then: the old block is gone all the same.
SITE void site_mi_reallocf(struct block *block, size_t size)
{
    void *memory = mi_reallocf(block->memory, size % 4 ? size : impossible);
    AFTER_CALL();
    moves(block, "site_mi_reallocf", memory, size);
}

SITE void site_mi_reallocn(struct block *block, size_t size)
{
    void *memory = mi_reallocn(block->memory, 2, size);
    AFTER_CALL();
    moves(block, "site_mi_reallocn", memory, 2 * size);
}

SITE void site_mi_recalloc(struct block *block, size_t size)
{
    void *memory = mi_recalloc(block->memory, 3, size);
    AFTER_CALL();
    moves(block, "site_mi_recalloc", memory, 3 * size);
}

SITE void site_mi_realloc_aligned(struct block *block, size_t size)
{
    void *memory = mi_realloc_aligned(block->memory, size, 128);
    AFTER_CALL();
    moves(block, "site_mi_realloc_aligned", memory, size);
}

SITE void site_mi_expand(struct block *block, size_t size)
{
    void *memory = mi_expand(block->memory, size);
    AFTER_CALL();
    if (memory != NULL)
        moves(block, "site_mi_expand", memory, size);
}

static void mimalloc_change(struct block *block, unsigned choice, size_t size)
{
    switch (choice % 5) {
    case 0: site_mi_reallocf(block, size); break;
    case 1: site_mi_reallocn(block, size); break;
    case 2: site_mi_recalloc(block, size); break;
    case 3: site_mi_realloc_aligned(block, size); break;
    default: site_mi_expand(block, size); break;
    }
}

static void mimalloc_free(struct block *block, unsigned choice)
{
    if (choice % 2)
        mi_free(block->memory);
    else
        mi_free_size(block->memory, block->size);
}

static const struct own_calls all[] = {
    { jemalloc_fill, jemalloc_change, jemalloc_free },
    { tcmalloc_fill, tcmalloc_change, tcmalloc_free },
    { mimalloc_fill, mimalloc_change, mimalloc_free },
};
static const struct own_calls *chosen;

const struct own_calls *own_calls(void)
{
    return chosen;
}

bool own_calls_abort(void)
{
    return chosen == &all[2];
}

static void need(bool found, const char *allocator)
{
    if (!found) {
        say("no functions of %s", allocator);
        _exit(2);
    }
}

void find_own_calls(const char *allocator)
{
    *(void **)&pvalloc_here = dlsym(RTLD_DEFAULT, "pvalloc");
    if (strcmp(allocator, "jemalloc") == 0) {
        need(FIND(mallocx) && FIND(rallocx) && FIND(xallocx) && FIND(dallocx) && FIND(sdallocx), allocator);
        chosen = &all[0];
    } else if (strcmp(allocator, "tcmalloc") == 0) {
        need(FIND(tc_malloc_skip_new_handler) && FIND(tc_memalign) && FIND(tc_free), allocator);
        chosen = &all[1];
    } else if (strcmp(allocator, "mimalloc") == 0) {
        need(FIND(mi_malloc_small) && FIND(mi_zalloc) && FIND(mi_mallocn) && FIND(mi_malloc_aligned), allocator);
        need(FIND(mi_calloc_aligned) && FIND(mi_new_n) && FIND(mi_reallocn) && FIND(mi_reallocf), allocator);
        need(FIND(mi_recalloc) && FIND(mi_realloc_aligned) && FIND(mi_expand), allocator);
        need(FIND(mi_free) && FIND(mi_free_size), allocator);
        chosen = &all[2];
    }
}
