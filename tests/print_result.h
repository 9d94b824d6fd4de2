// A failed CHECK of a Result says what the error was. (Boost's own operator<< wants printable values and errors.)
#pragma once
#include <tilewise/base/result.h>

#include <doctest/doctest.h>

#include <string>

template <class T> struct doctest::StringMaker<boost::system::result<T, tilewise::Error>> {
  static String convert(const boost::system::result<T, tilewise::Error>& result) {
    if (result) return "a value";
    return (std::string(tilewise::name_of(result.error().code)) + ": " + result.error().message).c_str();
  }
};
