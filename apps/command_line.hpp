// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::apps {

/// Options that may be given only once, as it would be unclear which of two values applies.
class GivenOnce {
 public:
  /// Throws Error if the option was given before with another value.
  void add(const std::string& option, const std::string& value) {
    const auto [before, is_new] = values_.emplace(option, value);
    require(is_new || before->second == value, option, " is given twice, as ",
            shown(before->second), " and as ", shown(value), "; expected one of them");
  }

 private:
  std::map<std::string, std::string> values_;
};

/// The command line of a program with commands: the command, options with values, and files. Flags
/// of Kokkos are removed before.
class CommandLine {
 public:
  /// Throws Error for an option that is neither in `known` nor in `flags`, or for a known one
  /// without its value: "--seed 1" or "--seed=1". Flags take no value. Options in `repeated`, which
  /// must also be known, may be given with several values. Arguments after "--" are not options.
  CommandLine(const std::string& program, int argc, char** argv,
              const std::vector<std::string>& known, const std::vector<std::string>& flags = {},
              const std::vector<std::string>& repeated = {}) {
    for (int i = 2; i < argc; ++i) {
      const std::string argument = argv[i];
      if (argument.rfind("--kokkos-", 0) == 0) continue;
      if (only_files_ || argument.rfind("--", 0) != 0) {
        files_.push_back(argument);
      } else if (argument == "--") {
        only_files_ = true;
      } else if (std::find(flags.begin(), flags.end(), argument) != flags.end()) {
        flags_.push_back(argument);
      } else {
        const std::size_t equals = argument.find('=');
        const std::string name = argument.substr(0, equals);
        require(std::find(known.begin(), known.end(), name) != known.end(), "unknown option '",
                name, "' of ", argv[1], "; see ", program, " --help");
        require(equals != std::string::npos || i + 1 < argc, name, " needs a value");
        const std::string value =
            equals == std::string::npos ? argv[++i] : argument.substr(equals + 1);
        if (std::find(repeated.begin(), repeated.end(), name) == repeated.end())
          once_.add(name, value);
        options_.emplace_back(name, value);
      }
    }
  }

  const std::vector<std::string>& files() const { return files_; }

  const std::string& one_file(const std::string& command, const std::string& kind) const {
    require(files_.size() == 1, command, " takes one ", kind, "; found ", files_.size());
    return files_[0];
  }

  bool flag(const std::string& name) const {
    return std::find(flags_.begin(), flags_.end(), name) != flags_.end();
  }

  std::optional<std::string> text_option(const std::string& name) const {
    for (const auto& option : options_)
      if (option.first == name) return option.second;
    return std::nullopt;
  }

  /// Returns all values of a repeated option, in order.
  std::vector<std::string> text_options(const std::string& name) const {
    std::vector<std::string> values;
    for (const auto& option : options_)
      if (option.first == name) values.push_back(option.second);
    return values;
  }

  template <class Integer>
  std::optional<Integer> integer_option(const std::string& name) const {
    const std::optional<std::string> value = text_option(name);
    if (!value) return std::nullopt;
    Integer number{};
    const char* end = value->data() + value->size();
    const auto [stopped, failure] = std::from_chars(value->data(), end, number);
    require(failure == std::errc() && stopped == end, name, " is '", *value,
            "'; expected a whole number from 0 on");
    return number;
  }

  std::optional<double> number_option(const std::string& name) const {
    const std::optional<std::string> value = text_option(name);
    if (!value) return std::nullopt;
    TextReader stream(*value);
    double number = 0.0;
    stream >> number;
    require(!stream.fail() && stream.peek() == std::istringstream::traits_type::eof(), name,
            " is '", *value, "'; expected a number");
    return number;
  }

 private:
  std::vector<std::string> files_;
  std::vector<std::string> flags_;
  std::vector<std::pair<std::string, std::string>> options_;
  GivenOnce once_;
  bool only_files_ = false;
};

}  // namespace ostrakon::apps
