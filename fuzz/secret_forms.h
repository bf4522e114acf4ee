// What the fuzz targets about secrets share: a slow and simple way to see whether a text stands
// somewhere in a regular encoding, and inputs in which a byte stands for a text.
#pragma once

#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "base/encoding.h"

namespace caisson::fuzz {

inline std::string each_as(std::string_view text, std::string_view before, bool upper) {
  std::string out;
  for (const char& c : text) {
    std::string hex = hex_encode(std::string_view(&c, 1));
    if (upper) {
      for (char& digit : hex) digit = static_cast<char>(std::toupper(digit));
    }
    out.append(before).append(hex);
  }
  return out;
}

// The characters in base64 that are the text's alone, with so many bytes before it.
inline std::string base64_within(std::string_view text, std::size_t before) {
  std::string padded(before, 'x');
  padded += text;
  std::string whole = base64_encode(padded);
  whole.resize(padded.size() * 8 / 6);
  return whole.substr(before == 0 ? 0 : before + 1);
}

inline std::string url_alphabet(std::string text) {
  for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
  return text;
}

// The regular encodings that have one spelling each.
inline std::vector<std::string> forms_of(std::string_view text) {
  std::vector<std::string> forms = {std::string(text),
                                    each_as(text, "%", false),
                                    each_as(text, "%", true),
                                    each_as(text, "\\u00", false),
                                    each_as(text, "\\u00", true),
                                    each_as(text, "", false),
                                    each_as(text, "", true)};
  for (std::size_t before = 0; before < 3; ++before) {
    forms.push_back(base64_within(text, before));
    forms.push_back(url_alphabet(forms.back()));
  }
  std::string wide;
  for (const char c : text) wide.append(1, c).append(1, '\0');
  wide.pop_back();
  forms.push_back(wide);
  return forms;
}

inline bool has_form(std::string_view where, const std::vector<std::string>& forms) {
  for (const std::string& form : forms) {
    if (where.find(form) != std::string_view::npos) return true;
  }
  return false;
}

// The bytes below texts.size() (but for the line's end and the tab) as these texts.
inline std::string written_out(std::string_view bytes, const std::vector<std::string>& texts) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < texts.size() && c != '\n' && c != '\t' && !texts[byte].empty()) {
      out += texts[byte];
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace caisson::fuzz
