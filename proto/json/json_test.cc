#include <doctest/doctest.h>
#include <tilewise/json/json.h>

using namespace tilewise;

TEST_CASE("text that is no UTF-8 becomes UTF-8") {
  CHECK(json::utf8("plain \"quoted\" <b>") == "plain \"quoted\" <b>");
  CHECK(json::utf8("gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80") ==
        "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80");
  CHECK(json::utf8("a\xFF"
                   "b") ==
        "a\xEF\xBF\xBD"
        "b");
  CHECK(json::utf8("\xC3") == "\xEF\xBF\xBD");
  CHECK(json::utf8("\xC0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD");             // overlong
  CHECK(json::utf8("\xED\xA0\x80").size() == 9);                           // a surrogate
  CHECK(json::utf8("\xF4\x90\x80\x80").size() == 12);                      // beyond the last code point
  CHECK(json::utf8(std::string_view("\0x", 2)) == std::string("\0x", 2));  // JSON escapes it
}

TEST_CASE("what is written reads back") {
  const json::object object{{"name", json::utf8("</script>\x01\n")}, {"id", json::id_text(1ull << 60)}};
  const json::value back = boost::json::parse(boost::json::serialize(object));
  CHECK(back.at("name").as_string() == "</script>\x01\n");
  CHECK(back.at("id").as_string() == "1152921504606846976");
}
