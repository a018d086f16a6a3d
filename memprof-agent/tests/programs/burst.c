// Allocates COUNT blocks of SIZE bytes slowly, frees them at once, and allocates COUNT more at once: one
// step per line that it is sent. Usage: burst COUNT SIZE
#include "target.h"

static void *blocks[100000];

SITE void *first_block(size_t size)
{
    void *block = malloc(size);
    AFTER_CALL();
    return block;
}

SITE void *second_block(size_t size)
{
    void *block = malloc(size);
    AFTER_CALL();
    return block;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    size_t count = number(argv[1]), size = number(argv[2]);
    say("ready");
    wait_for_line();
    for (size_t i = 0; i < count; i++) {
        blocks[i] = first_block(size);
        if (i % 16 == 15)
            usleep(1000);
    }
    say("done");
    wait_for_line();
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
    say("done");
    wait_for_line();
    for (size_t i = 0; i < count; i++)
        blocks[i] = second_block(size);
    say("done");
    wait_for_line();
    return 0;
}
