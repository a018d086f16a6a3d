// C++ objects made by operator new: the stacks must name who made them.
#include "target.h"

#include <string>
#include <vector>

namespace leaky {

struct Widget {
    char bytes[240];
    static Widget *create(int count);
};

SITE Widget *Widget::create(int count)
{
    Widget *widget = new Widget();
    widget->bytes[0] = (char)count;
    AFTER_CALL();
    return widget;
}

SITE void fill(std::vector<std::string> &texts)
{
    texts.reserve(100);                 // 100 * 32 bytes
    for (int i = 0; i < 100; i++)
        texts.emplace_back(999, 'x');   // 1000 bytes each, with the terminator
    AFTER_CALL();
}

} // namespace leaky

static leaky::Widget *volatile last;

int main()
{
    say("ready");
    wait_for_line();
    for (int i = 0; i < 500; i++)
        last = leaky::Widget::create(i);
    std::vector<std::string> texts;
    leaky::fill(texts);
    say_site("leaky::Widget::create", 500 * sizeof(leaky::Widget), 500);
    say_site("leaky::fill", 100 * sizeof(std::string) + 100 * 1000, 101);
    say("done");
    wait_for_line();
    return 0;
}
