#include <tilewise/base/text.h>
#include <tilewise/base/utf8.h>

#include <doctest/doctest.h>

using namespace tilewise;

TEST_CASE("a text for terminals has no control characters, and is UTF-8") {
  for (const char* good :
       {"", "worker 1", "gr\xC3\xBC\xC3\x9F", "\xE6\x97\xA5\xE6\x9C\xAC", "\xF0\x9F\x98\x80"}) {
    CAPTURE(good);
    CHECK(is_printable(good));
    CHECK(printable(good) == good);
  }
  for (const char* bad : {"\x1B[2J", "a\nb", "\x7F", "\xC2\x9B", "\xFF", "\xC0\x80", "\xED\xA0\x80",
                          "\xE6\x97", "\xF5\x80\x80\x80"})
    CHECK(!is_printable(bad));
  CHECK(printable("a\x1B[2Jb\xFF\xC2\x9Bz") == "a?[2Jb??z");
}

TEST_CASE("a JSON string is one, whatever the text") {
  CHECK(json_quote("a\"b\\c\n\x01") == R"("a\"b\\c\n\u0001")");
  CHECK(json_quote("gr\xC3\xBC\xC3\x9F") == "\"gr\xC3\xBC\xC3\x9F\"");
  CHECK(json_quote("\xFF|\xE6\x97|") == "\"\xEF\xBF\xBD|\xEF\xBF\xBD\xEF\xBF\xBD|\"");
  CHECK(json_quote("\x7F\xC2\x9B") == R"("\u007f\u009b")");
}
