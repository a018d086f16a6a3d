// An allocator that nobody knows: it hands out memory in order and takes nothing back. Preloaded it is
// the program's allocator; loaded as a plugin it is its own.
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static _Alignas(65536) unsigned char memory[1 << 30];
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void *take(size_t alignment, size_t size)
{
    pthread_mutex_lock(&lock);
    // The size stands before the block.
    size_t start = (used + 16 + alignment - 1) / alignment * alignment;
    void *block = NULL;
    if (size < sizeof memory && start + size < sizeof memory) {
        memcpy(memory + start - 8, &size, 8);
        used = start + size;
        block = memory + start;
    }
    pthread_mutex_unlock(&lock);
    return block;
}

void *malloc(size_t size)
{
    return take(16, size);
}

void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    void *block = malloc(bytes);
    if (block)
        memset(block, 0, bytes);
    return block;
}

void free(void *block)
{
    (void)block;
}

void *realloc(void *old, size_t size)
{
    void *block = malloc(size);
    if (block && old) {
        size_t before;
        memcpy(&before, (char *)old - 8, 8);
        memcpy(block, old, before < size ? before : size);
        free(old);
    }
    return block;
}

void *memalign(size_t alignment, size_t size)
{
    return take(alignment < 16 ? 16 : alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = memalign(alignment, size);
    return *block ? 0 : 12;
}

void *valloc(size_t size)
{
    return memalign(4096, size);
}

// What a plugin does with its own allocator.
__attribute__((noipa)) void *plugin_block(size_t size)
{
    void *block = realloc(calloc(1, size), 2 * size);
    __asm__ volatile("" ::: "memory");
    return block;
}
