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

TEST_CASE("numbers are read to the last bit") {
  boost::system::error_code ec;
  for (const double x : {9.969209968386869e+36, 0.1, 5e-324, 1.7976931348623157e308, -2.2250738585072011e-308,
                         123456789.12345678, 6.02214076e23}) {
    CAPTURE(x);
    const json::value back =
        json::parse_exactly(boost::json::serialize(json::array{x, "a\n", {{"k", nullptr}}}), ec);
    CHECK(!ec);
    CHECK(back.at(0).as_double() == x);
    CHECK(back.at(1).as_string() == "a\n");
    CHECK(back.at(2).at("k").is_null());
  }
  CHECK(json::parse_exactly("{\"a\": [1, -2, 18446744073709551615, true, [], {}]}", ec) ==
        boost::json::parse("{\"a\": [1, -2, 18446744073709551615, true, [], {}]}"));
  CHECK(!ec);
  for (const char* bad : {"", "{", "[1,]", "1 2", "1e", "nan", "{\"a\" 1}"}) {
    CAPTURE(bad);
    json::parse_exactly(bad, ec);
    CHECK(ec);
    ec = {};
  }
}

TEST_CASE("what is written reads back") {
  const json::object object{{"name", json::utf8("</script>\x01\n")}, {"id", json::id_text(1ull << 60)}};
  const json::value back = boost::json::parse(boost::json::serialize(object));
  CHECK(back.at("name").as_string() == "</script>\x01\n");
  CHECK(back.at("id").as_string() == "1152921504606846976");
}
