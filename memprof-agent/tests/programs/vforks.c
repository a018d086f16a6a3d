// Children of vfork that allocate and free in their parent's memory before they go. Usage: vforks [PROGRAM]
#include "target.h"

#include <sys/wait.h>

enum { ROUNDS = 200 };

static void *kept[ROUNDS];

SITE void *parent_block(void)
{
    void *block = malloc(1000);
    AFTER_CALL();
    return block;
}

SITE void *child_block(void)
{
    void *block = malloc(64);
    AFTER_CALL();
    return block;
}

int main(int argc, char **argv)
{
    say("ready");
    wait_for_line();
    for (int i = 0; i < ROUNDS; i++) {
        void *volatile given = parent_block();
        void *volatile own = parent_block();
        pid_t child = vfork();
        if (child == 0) {
            free(given);
            kept[i] = child_block();
            free(child_block());
            if (argc > 1)
                execl(argv[1], argv[1], (char *)NULL);
            _exit(0);
        }
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return 2;
        if (i % 2)
            free(own);
    }
    say_site("parent_block", ROUNDS / 2 * 1000, ROUNDS / 2);
    say_site("child_block", ROUNDS * 64, ROUNDS);
    say("done");
    wait_for_line();
    return 0;
}
