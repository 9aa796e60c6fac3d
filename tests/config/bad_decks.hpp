// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "support/table.hpp"

// Invalid decks, and what their error messages say: keys, values and what was expected.

namespace ostrakon::config {

inline std::string message_of(const std::string& deck, const std::string& name,
                              const std::vector<Override>& overrides = {}) {
  return testing::error_of([&] { read_settings(deck, name, overrides); });
}

struct BadDeck {
  std::string deck;
  std::string said;  ///< after the deck's name; parts between ".." in this order
};

inline void expect_refused(const std::vector<BadDeck>& decks, const std::string& name) {
  for (const BadDeck& bad : decks) {
    const std::string message = message_of(bad.deck, name);
    EXPECT_EQ(message.rfind(name + ": ", 0), 0U) << message << " of\n" << bad.deck;
    EXPECT_TRUE(testing::says(message, bad.said)) << message << "\nwithout\n" << bad.said;
  }
}

/// Returns a deck with synthetic data and one more line.
inline std::string with(const std::string& section, const std::string& line) {
  return "ostrakon:\n  data:\n    dataset: synthetic\n  " + section + ":\n    " + line + "\n";
}

/// Checks each value of a table with the rows "section.key | what is expected | value | value ...".
inline void expect_values_refused(const std::string& table) {
  for (const std::vector<std::string>& row : testing::rows_of(table)) {
    const std::vector<std::string> key = testing::split(row[0], ".");
    for (std::size_t i = 2; i < row.size(); ++i) {
      const std::string shown = row[i] == "yes" ? "true" : row[i] == "no" ? "false" : row[i];
      const std::string message = message_of(with(key[0], key[1] + ": " + row[i]), "deck.yaml");
      const std::string begin = "deck.yaml: " + row[0] + " = ", end = ": expected " + row[1];
      EXPECT_TRUE(message.rfind(begin + shown + end, 0) == 0 ||
                  message.rfind(begin + '"' + shown + '"' + end, 0) == 0)
          << message << " of the value " << row[i];
    }
  }
}

/// Checks rows "section.key: value; section.key: value ... | what the message says".
inline void expect_together_refused(const std::string& table) {
  for (const std::vector<std::string>& row : testing::rows_of(table)) {
    std::string deck = "ostrakon:\n  data: {dataset: synthetic}\n", section = "data";
    for (const std::string& setting : testing::split(row[0], ";")) {
      const std::vector<std::string> key = testing::split(setting, ".");
      if (key[0] != section) deck += "  " + key[0] + ":\n";
      section = key[0];
      deck += "    " + setting.substr(section.size() + 1) + "\n";
    }
    expect_refused({{deck, row[1]}}, "deck.yaml");
  }
}

}  // namespace ostrakon::config
