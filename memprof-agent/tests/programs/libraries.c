// Loads a library, lets it allocate, unloads it and does the same with another one, which gets the same place.
// Usage: libraries FIRST.so SECOND.so
#include "target.h"

#include <dlfcn.h>

static void *blocks[2][50];

// Gives the address at which the library's function was.
SITE size_t use_library(const char *path, void **kept)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *(*allocate)(size_t) = library ? (void *(*)(size_t))dlsym(library, "allocate") : NULL;
    if (!allocate)
        _exit(5);
    for (int i = 0; i < 50; i++)
        kept[i] = allocate(1000);
    size_t address = (size_t)allocate;
    // Time for the mappings to be seen.
    usleep(1500000);
    if (dlclose(library))
        _exit(6);
    usleep(1500000);
    return address;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    say("ready");
    wait_for_line();
    for (int i = 0; i < 2; i++)
        say("value address_%d %zu", i, use_library(argv[1 + i], blocks[i]));
    say("done");
    wait_for_line();
    return 0;
}
