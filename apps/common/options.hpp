// SPDX-License-Identifier: Apache-2.0
#pragma once

// Command lines: a program lists its commands and their options once. That table is parsed, printed
// as --help, and says where each value goes.

#include <charconv>
#include <functional>
#include <limits>
#include <optional>
#include <ostrakon/base/names.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::apps {

using Words = std::vector<std::string>;

/// What is done with the value of an option.
struct Value {
  /// Takes it. Returns "", or what was expected instead: "an integer >= 1". May throw Error.
  std::function<std::string(const std::string& value)> take;
  bool may_repeat = false;   ///< else two different values are refused
  bool is_any_text = false;  ///< also a word that begins with "--"
  bool is_output = false;    ///< a path that is written, see require_output
  bool is_required = false;
  std::string needs = "";  ///< another option, without which this one means nothing
};

struct Option {
  std::string name;         ///< "--ranks"; empty: `help` is a heading
  std::string placeholder;  ///< "N"; empty: a flag
  Value value;
  std::string help;  ///< empty: --help does not show the option
};

/// What was given to a command.
struct Given {
  std::string command;
  Words operands;
  std::vector<std::pair<std::string, std::string>> options;  ///< names and values, in order
  Words line;  ///< all words, the program's name first

  bool has(const std::string& option) const;
};

struct Command {
  std::string name;      ///< "build"; empty: where a program is started without a command
  std::string operands;  ///< "FILE", "A B", "[DECK]" where it may be missing, "FILE..."
  std::string about;
  std::vector<Option> options = {};
  std::function<int(const Given&)> run = {};                        ///< returns the exit status
  std::vector<std::pair<std::string, std::string>> exclusive = {};  ///< options, one or the other
};

enum class Runs { without_kokkos, on_one_rank, on_ranks };

struct Program {
  std::string name;
  std::string about;  ///< of all commands
  std::vector<Command> commands;
  std::vector<Option> options = {};  ///< of all commands
  std::string after = "";            ///< what --help ends with
  Runs runs = Runs::without_kokkos;
};

/// Hands all values to their options. `words`: without the program's name. Arguments after "--" are
/// no options, and flags of Kokkos are ignored. Throws Error for the first word that is not
/// expected, and for what is missing.
Given parse(const Program& program, const Words& words);
const Command& command_called(const Program& program, const std::string& name);

/// The text of --help; where `words` has the name of a command, of that one alone.
std::string help(const Program& program, const Words& words);

/// The answer to --help or --version, if one of them is among `words`; else "".
std::string answer(const Program& program, const Words& words);

// --- values --------------------------------------------------------------------------------------

/// The type of a value whose place is a T or an std::optional<T>.
template <class T>
struct Held {
  using Type = T;
};
template <class T>
struct Held<std::optional<T>> {
  using Type = T;
};

std::optional<double> read_number(const std::string& text, double least, double most);
std::string expected_one_of(const Words& names);

Value flag(bool& to);

/// Any text, also "--x" and none.
template <class To>
Value any_text(To& to) {
  Value value{[&to](const std::string& given) {
    to = given;
    return "";
  }};
  value.is_any_text = true;
  return value;
}

/// Text that is not empty, `what`: "the name of a file".
template <class To>
Value word(To& to, const char* what = "the name of a file") {
  return {[&to, what](const std::string& value) {
    to = value;
    return value.empty() ? what : "";
  }};
}

/// A word of each time that the option is given, in their order.
Value words(Words& to, const char* what = "the name of a file");

/// A path that is written.
template <class To>
Value output(To& to) {
  Value value = word(to);
  value.is_output = true;
  return value;
}

template <class To, class Integer = typename Held<To>::Type>
Value integer(To& to, typename Held<To>::Type least,
              typename Held<To>::Type most = std::numeric_limits<Integer>::max()) {
  return {[&to, least, most](const std::string& value) -> std::string {
    Integer number{};
    const char* const end = value.data() + value.size();
    const auto [stopped, failure] = std::from_chars(value.data(), end, number);
    if (failure != std::errc() || stopped != end || number < least || number > most)
      return most == std::numeric_limits<Integer>::max()
                 ? text("an integer >= ", least)
                 : text("an integer from ", least, " to ", most);
    to = number;
    return "";
  }};
}

/// A number that is above 0 and at most `most`.
template <class To>
Value above_zero(To& to, double most = 1e15) {
  return {[&to, most](const std::string& value) -> std::string {
    const std::optional<double> number = read_number(value, 0.0, most);
    if (!number || *number == 0.0) return text("a number above 0 and at most ", most);
    to = *number;
    return "";
  }};
}

template <class To, class Enum, std::size_t count>
Value choice(To& to, const Named<Enum> (&names)[count]) {
  return {[&to, &names](const std::string& value) -> std::string {
    const std::optional<Enum> found = find_named(names, value);
    if (found) to = *found;
    if (found) return "";
    Words all;
    for (const Named<Enum>& one : names) all.emplace_back(one.name);
    return expected_one_of(all);
  }};
}

/// "80GiB", "1.5 TB", or a number of bytes.
Value bytes(std::int64_t& to);

Value required(Value value);
/// `value` goes with the option `needs` only.
Value with(const std::string& needs, Value value);

/// --set SECTION.KEY=VALUE.
Option set_option(std::vector<config::Override>& to);
/// A line above the options that follow.
Option heading(const std::string& text);

}  // namespace ostrakon::apps
