// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>
#include <vector>

// Invalid decks, and their error messages. Messages are compared completely, as users see them.

namespace ostrakon::config {

struct BadDeck {
  std::string deck;
  std::string message;
};

inline std::string message_of(const std::string& deck, const std::string& name,
                              const std::vector<Override>& overrides = {}) {
  try {
    read_settings(deck, name, overrides);
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

inline void expect_messages(const std::vector<BadDeck>& decks, const std::string& name) {
  for (const BadDeck& bad : decks) EXPECT_EQ(message_of(bad.deck, name), bad.message) << bad.deck;
}

/// Returns a deck with synthetic data and one more line.
inline std::string with(const std::string& section, const std::string& line) {
  return "ostrakon:\n  data:\n    dataset: synthetic\n  " + section + ":\n    " + line + "\n";
}

}  // namespace ostrakon::config
