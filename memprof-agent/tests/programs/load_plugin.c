// Loads a library that has an allocator of its own, uses it, and unloads it. Usage: load_plugin LIBRARY
#include "target.h"

#include <dlfcn.h>

static void *volatile last;

SITE void *own_block(size_t size)
{
    void *block = malloc(size);
    AFTER_CALL();
    return block;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    say("ready");
    wait_for_line();
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return 3;
    void *(*plugin_block)(size_t) = (void *(*)(size_t))dlsym(library, "plugin_block");
    say("done");
    wait_for_line();
    for (size_t i = 0; i < 1000; i++) {
        last = plugin_block(100);
        last = own_block(50);
        pace(i * 3);
    }
    say_site("plugin_block", 200000, 1000);
    say_site("own_block", 50000, 1000);
    say("done");
    wait_for_line();
    dlclose(library);
    say("done");
    wait_for_line();
    return 0;
}
