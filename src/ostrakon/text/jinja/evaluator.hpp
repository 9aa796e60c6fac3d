// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/text/jinja/builtins.hpp>
#include <ostrakon/text/jinja/tree.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::texts::jinja {

/// Variables, and those of the scope around.
struct Scope {
  const Scope* around;
  std::vector<std::pair<Name, Value>> values;

  const Value* find(Name name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->around)
      for (const auto& entry : scope->values)
        if (entry.first == name) return &entry.second;
    return nullptr;
  }
  void set(Name name, Value value) {
    for (auto& entry : values) {
      if (entry.first != name) continue;
      entry.second = std::move(value);
      return;
    }
    values.emplace_back(name, std::move(value));
  }
};

/// Computes the values of expressions, and counts what that takes.
class Evaluator : public Context {
 public:
  /// `variables`: a dict of what a template was given. Both must outlive the object.
  Evaluator(const Tree& tree, const Value& variables) : tree_(tree), variables_(variables) {}

  void spend(std::size_t work) override;

 protected:
  /// Counts evaluations inside of each other, macros included, so that none overflows the stack.
  struct Depth {
    explicit Depth(Evaluator& evaluator);
    ~Depth() { --evaluator_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Evaluator& evaluator_;
  };

  Value evaluate(const Expression& expression, const Scope& scope);
  /// Says which line of the template is evaluated, for messages, and counts it.
  void begin(int line);
  Value text_value(std::string text);
  /// Appends to what is printed.
  void print(std::string_view text, std::string& out);
  void print_value(const Value& value, std::string& out);
  const std::string& name_of(Name name) const;
  Value undefined(Name name) const;
  Value variable(Name name, const Scope& scope) const;
  /// Filters of a block, the innermost of which has no value of its own.
  Value evaluate_filters(const Expression& expression, const Value& value, const Scope& scope);

  const Tree& tree_;
  int line_ = 1;  ///< of what is evaluated

 private:
  /// Counts what it took to make a value.
  Value counted(Value value);
  Values evaluate_parts(const Expression& expression, std::size_t first, const Scope& scope);
  Value evaluate_dict(const Expression& expression, const Scope& scope);
  Value find_attribute(const Value& object, const Expression& expression);
  Value evaluate_item(const Expression& expression, const Scope& scope);
  Value evaluate_slice(const Expression& expression, const Scope& scope);
  Arguments evaluate_arguments(const Expression& expression, const Scope& scope);
  Value evaluate_call(const Expression& expression, const Scope& scope);
  Value evaluate_filter(const Expression& expression, const Value& value, const Scope& scope);
  Value evaluate_comparison(const Expression& expression, const Scope& scope);
  bool compare(const std::string& operation, const Value& a, const Value& b);

  const Value& variables_;
  std::size_t work_ = 0;
  int depth_ = 0;
};

}  // namespace ostrakon::texts::jinja
