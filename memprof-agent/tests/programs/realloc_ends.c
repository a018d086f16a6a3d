// The ways a realloc can end: it fails (the old block lives on), it frees, it shrinks in place, it moves.
#include "target.h"

#include <stdint.h>

enum { TIMES = 120 };

static volatile size_t impossible = SIZE_MAX / 2;
static volatile size_t nothing = 0;
static void *blocks[TIMES];

SITE void *first_block(size_t size)
{
    void *block = malloc(size);
    AFTER_CALL();
    return block;
}

SITE void *fail_to_grow(void *block)
{
    void *grown = realloc(block, impossible);
    AFTER_CALL();
    return grown;
}

SITE void *fail_to_grow_array(void *block)
{
    void *grown = reallocarray(block, impossible, 8);
    AFTER_CALL();
    return grown;
}

SITE void *free_by_realloc(void *block)
{
    void *gone = realloc(block, nothing);
    AFTER_CALL();
    return gone;
}

SITE void *shrink(void *block, size_t size)
{
    void *smaller = realloc(block, size);
    AFTER_CALL();
    return smaller;
}

SITE void *move_away(void *block, size_t size)
{
    void *larger = realloc(block, size);
    AFTER_CALL();
    return larger;
}

int main(void)
{
    say("ready");
    wait_for_line();
    // Of 120 blocks that two failing calls each could not change, 20 go by free, 20 by realloc(p, 0),
    // 20 shrink and 20 move: 40 remain at their first site.
    for (int i = 0; i < TIMES; i++)
        blocks[i] = first_block(1234);
    size_t failed = 0;
    for (int i = 0; i < TIMES; i++)
        failed += (fail_to_grow(blocks[i]) == NULL) + (fail_to_grow_array(blocks[i]) == NULL);
    for (int i = 0; i < 20; i++)
        free(blocks[i]);
    for (int i = 20; i < 40; i++)
        if (free_by_realloc(blocks[i]) != NULL)
            abort();
    for (int i = 40; i < 60; i++)
        if ((blocks[i] = shrink(blocks[i], 700)) == NULL)
            abort();
    for (int i = 60; i < 80; i++)
        if ((blocks[i] = move_away(blocks[i], 300000)) == NULL)
            abort();
    say("value failed %zu", failed);
    say_site("first_block", 40 * 1234, 40);
    say_site("fail_to_grow", 0, 0);
    say_site("fail_to_grow_array", 0, 0);
    say_site("free_by_realloc", 0, 0);
    say_site("shrink", 20 * 700, 20);
    say_site("move_away", 20 * 300000, 20);
    say("done");
    wait_for_line();
    return 0;
}
