// How a text is written into YAML, so that every reader takes it as the same text. Pure.
#pragma once

#include <string>
#include <string_view>

namespace caisson::policy {

// Appends `text`, which is UTF-8, to `out`: as a plain word where that is safe, else in quotes.
void write_yaml_text(std::string_view text, std::string& out);

}  // namespace caisson::policy
