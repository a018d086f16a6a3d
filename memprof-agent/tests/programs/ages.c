// Blocks of two ages: the test lets time pass between them. The younger ones are the bigger part.
#include "target.h"

static void *volatile last;

SITE void *old_block(void)
{
    void *block = malloc(640);
    AFTER_CALL();
    return block;
}

SITE void *young_block(void)
{
    void *block = malloc(1280);
    AFTER_CALL();
    return block;
}

int main(void)
{
    say("ready");
    wait_for_line();
    for (int i = 0; i < 100; i++)
        last = old_block();
    say("done");
    wait_for_line();
    for (int i = 0; i < 100; i++)
        last = young_block();
    say("done");
    wait_for_line();
    return 0;
}
