// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/keys.hpp>

namespace ostrakon::config {

std::string summary(const Settings& settings) {
  constexpr std::size_t indent = 15, longest = 96;
  std::string lines;
  for (const Section& section : sections()) {
    std::string line = "  " + section.name;
    line.resize(indent, ' ');
    for (const Key& key : section.keys) {
      const std::string shown = key.name + " " + key.get(settings).shown();
      if (line.size() > indent && line.size() + shown.size() + 2 > longest) {
        lines += line + ",\n";
        line.assign(indent, ' ');
      }
      line += (line.size() > indent ? ", " : "") + shown;
    }
    lines += line + "\n";
  }
  return lines;
}

}  // namespace ostrakon::config
