// Random sequences of allocator calls by several threads, which hand blocks to each other. The program
// keeps its own account of what is alive, by the function that called the allocator.
//
//   random_calls SEED SEQUENCES THREADS glibc|jemalloc|tcmalloc|mimalloc|plain|musl
//
// plain and musl: no C++. musl: no strdup either, whose stack cannot be unwound there.
#include "random_calls.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { SLOTS = 32, EXCHANGED = 64, MAX_THREADS = 8, MAX_SITES = 64 };

static volatile size_t impossible = SIZE_MAX / 4;
static volatile size_t nothing = 0;

static struct site {
    const char *name;
    atomic_size_t bytes, objects;
} sites[MAX_SITES];
static atomic_int site_count;
static pthread_mutex_t site_lock = PTHREAD_MUTEX_INITIALIZER;

// The account of one site, by the address of its name.
static struct site *site_named(const char *name)
{
    int known = site_count;
    for (int i = 0; i < known; i++)
        if (sites[i].name == name)
            return &sites[i];
    pthread_mutex_lock(&site_lock);
    for (int i = 0; i < site_count; i++)
        if (sites[i].name == name) {
            pthread_mutex_unlock(&site_lock);
            return &sites[i];
        }
    if (site_count == MAX_SITES)
        abort();
    sites[site_count].name = name;
    struct site *site = &sites[site_count++];
    pthread_mutex_unlock(&site_lock);
    return site;
}

void block_lives(struct block *block, const char *site, void *memory, size_t size, enum family family)
{
    if (memory == NULL)
        return;
    *block = (struct block){ .memory = memory, .size = size, .family = family, .site = site };
    memset(memory, 0x5a, size < 64 ? size : 64);
    atomic_fetch_add(&site_named(site)->bytes, size);
    atomic_fetch_add(&site_named(site)->objects, 1);
}

void block_dies(struct block *block)
{
    atomic_fetch_sub(&site_named(block->site)->bytes, block->size);
    atomic_fetch_sub(&site_named(block->site)->objects, 1);
    *block = (struct block){ 0 };
}

// A block that was handed to a function like realloc: its result takes its place.
static void block_moves(struct block *block, const char *site, void *memory, size_t size)
{
    block_dies(block);
    block_lives(block, site, memory, size, FROM_MALLOC);
}

SITE void site_malloc(struct block *block, size_t size)
{
    void *memory = malloc(size);
    AFTER_CALL();
    block_lives(block, "site_malloc", memory, size, FROM_MALLOC);
}

SITE void site_calloc(struct block *block, size_t size)
{
    void *memory = calloc(3, size);
    AFTER_CALL();
    block_lives(block, "site_calloc", memory, 3 * size, FROM_MALLOC);
}

SITE void site_realloc_null(struct block *block, size_t size)
{
    void *memory = realloc(NULL, size);
    AFTER_CALL();
    block_lives(block, "site_realloc_null", memory, size, FROM_MALLOC);
}

SITE void site_realloc(struct block *block, size_t size)
{
    void *memory = realloc(block->memory, size);
    AFTER_CALL();
    block_moves(block, "site_realloc", memory, size);
}

// glibc and tcmalloc free the block, the others hand out an empty one.
SITE void site_realloc_zero(struct block *block)
{
    void *memory = realloc(block->memory, nothing);
    AFTER_CALL();
    block_moves(block, "site_realloc_zero", memory, 0);
}

SITE void site_reallocarray(struct block *block, size_t size)
{
    void *memory = reallocarray(block->memory, 5, size);
    AFTER_CALL();
    block_moves(block, "site_reallocarray", memory, 5 * size);
}

SITE void site_posix_memalign(struct block *block, size_t size)
{
    void *memory = NULL;
    int error = posix_memalign(&memory, 256, size);
    AFTER_CALL();
    block_lives(block, "site_posix_memalign", error ? NULL : memory, size, FROM_MALLOC);
}

SITE void site_aligned_alloc(struct block *block, size_t size)
{
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    AFTER_CALL();
    block_lives(block, "site_aligned_alloc", memory, (size + 63) / 64 * 64, FROM_MALLOC);
}

SITE void site_memalign(struct block *block, size_t size)
{
    void *memory = memalign(size % 2 ? 16 : 1024, size);
    AFTER_CALL();
    block_lives(block, "site_memalign", memory, size, FROM_MALLOC);
}

SITE void site_valloc(struct block *block, size_t size)
{
    void *memory = valloc(size);
    AFTER_CALL();
    block_lives(block, "site_valloc", memory, size, FROM_MALLOC);
}

SITE void site_strdup(struct block *block, size_t size)
{
    char text[LARGEST + 1];
    memset(text, 'x', size);
    text[size] = 0;
    char *memory = strdup(text);
    AFTER_CALL();
    block_lives(block, "site_strdup", memory, size + 1, FROM_MALLOC);
}

// Requests that no allocator can grant; the blocks that are handed in live on.
SITE void site_impossible(struct block *block)
{
    void *memory = NULL;
    if (malloc(impossible) != NULL || calloc(impossible, 16) != NULL || calloc(16, impossible / 4) != NULL)
        abort();
    if (posix_memalign(&memory, 64, impossible) == 0)
        abort();
    if (block->memory && realloc(block->memory, impossible) != NULL)
        abort();
    if (block->memory && reallocarray(block->memory, impossible, 8) != NULL)
        abort();
    AFTER_CALL();
}

static void empty(struct block *block)
{
    if (block->memory == NULL) {
        free(NULL);
        return;
    }
    struct block gone = *block;
    // The account first: at once the address may be another thread's.
    block_dies(block);
    if (gone.family == FROM_MALLOC) {
        free(gone.memory);
        return;
    }
    delete_block(&gone);
}

static void fill(struct block *block, unsigned choice, size_t size)
{
    switch (choice) {
    case 0: site_malloc(block, size); break;
    case 1: site_malloc(block, 0); break;
    case 2: site_calloc(block, size); break;
    case 3: site_realloc_null(block, size); break;
    case 4: site_posix_memalign(block, size); break;
    case 5: site_aligned_alloc(block, size); break;
    case 6: site_memalign(block, size); break;
    case 7: site_valloc(block, size); break;
    case 8: site_strdup(block, size); break;
    default: new_block(block, choice, size); break;
    }
}

static void change(struct block *block, unsigned choice, size_t size)
{
    switch (choice) {
    case 0: site_realloc_zero(block); break;
    case 1: site_reallocarray(block, size); break;
    case 2: site_realloc(block, size * 100); break;
    default: site_realloc(block, size); break;
    }
}

static struct block exchange[EXCHANGED];
static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;

// Hands a block to whoever comes here next, and takes what another thread has left.
static void hand_over(struct block *block, unsigned where)
{
    pthread_mutex_lock(&exchange_lock);
    struct block taken = exchange[where];
    exchange[where] = *block;
    *block = taken;
    pthread_mutex_unlock(&exchange_lock);
}

static unsigned next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33);
}

static size_t seed, sequences, threads;
static unsigned choices = 9 + NEW_CHOICES;
static atomic_size_t calls;

// One sequence: forty steps over the slots of its thread.
static void sequence(struct block *slots, uint64_t state)
{
    const struct own_calls *own = own_calls();
    for (int step = 0; step < 40; step++) {
        struct block *block = &slots[next_random(&state) % SLOTS];
        size_t size = 1 + next_random(&state) % (LARGEST - 1);
        unsigned choice = next_random(&state);
        unsigned what = next_random(&state) % 100;
        if (what < 4) {
            hand_over(block, choice % EXCHANGED);
        } else if (what < 5) {
            if (block->family == FROM_MALLOC)
                site_impossible(block);
        } else if (block->memory != NULL && block->family == FROM_MALLOC && what < 30) {
            if (own != NULL && choice % 2)
                own->change(block, choice / 2, size);
            else
                change(block, choice / 2 % 6, size);
        } else if (block->memory != NULL) {
            if (own != NULL && block->family == FROM_MALLOC && choice % 2) {
                struct block gone = *block;
                block_dies(block);
                own->free(&gone, choice / 2);
            } else {
                empty(block);
            }
        } else if (own != NULL && choice % 4 == 0) {
            own->fill(block, choice / 4, size);
        } else {
            fill(block, choice / 4 % choices, size);
        }
    }
    atomic_fetch_add(&calls, 40);
}

static struct block slots[MAX_THREADS][SLOTS];

SITE void *worker(void *argument)
{
    size_t thread = (size_t)argument;
    for (size_t i = thread; i < sequences; i += threads) {
        sequence(slots[thread], (seed + i) * 0x9e3779b97f4a7c15u);
        usleep(1000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    seed = number(argv[1]);
    sequences = number(argv[2]);
    threads = number(argv[3]);
    if (strcmp(argv[4], "plain") == 0)
        choices = 9;
    else if (strcmp(argv[4], "musl") == 0)
        choices = 8;
    else
        find_own_calls(argv[4]);
    say("ready");
    wait_for_line();
    pthread_t running[MAX_THREADS];
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&running[i], NULL, worker, (void *)i))
            abort();
    for (size_t i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    for (int i = 0; i < site_count; i++)
        say_site(sites[i].name, sites[i].bytes, sites[i].objects);
    say("value calls %zu", calls);
    say("done");
    wait_for_line();
    return 0;
}
