// What the parts of random_calls share.
#ifndef MEMPROF_TEST_RANDOM_CALLS_H
#define MEMPROF_TEST_RANDOM_CALLS_H

#include "target.h"

#include <stdbool.h>

enum { LARGEST = 2000, NEW_CHOICES = 6 };

// By which functions a block may be freed.
enum family { FROM_MALLOC, FROM_NEW, FROM_NEW_ARRAY, FROM_ALIGNED_NEW, FROM_ALIGNED_NEW_ARRAY };

struct block {
    void *memory;
    size_t size;
    enum family family;
    const char *site;
};

// The calls that only one allocator has.
struct own_calls {
    void (*fill)(struct block *block, unsigned choice, size_t size);
    void (*change)(struct block *block, unsigned choice, size_t size);
    void (*free)(struct block *block, unsigned choice);
};

#ifdef __cplusplus
extern "C" {
#endif

// The account: a block that lives from now on at a site (nothing happens when there is no memory), and
// one that is about to die.
void block_lives(struct block *block, const char *site, void *memory, size_t size, enum family family);
void block_dies(struct block *block);

// C++: operator new in all its forms, and the operator delete for each.
void new_block(struct block *block, unsigned choice, size_t size);
void delete_block(const struct block *block);

// Looks up the functions of the named allocator; `own_calls` is NULL without.
void find_own_calls(const char *allocator);
const struct own_calls *own_calls(void);
// Whether that allocator ends the program where others throw an exception.
bool own_calls_abort(void);

#ifdef __cplusplus
}
#endif

#endif
