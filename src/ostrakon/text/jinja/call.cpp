// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/text/jinja/builtins.hpp>

namespace ostrakon::texts::jinja {

Value call(Context& context, const Function& function, const Arguments& arguments) {
  const auto& parameters = function.parameters;
  for (const Value& value : arguments.positional) context.spend(weight_of(value));
  for (const auto& named : arguments.named) context.spend(weight_of(named.second));
  if (!function.takes_more && arguments.positional.size() > parameters.size())
    fail("'", function.name, "' takes ", parameters.size(), " arguments, but ",
         arguments.positional.size(), " are given");
  Values values = arguments.positional;
  if (function.takes_more && !values.empty()) {
    values.insert(values.begin() + 1, parameters.size() - 1, Value::absent());
  } else {
    values.resize(parameters.size(), Value::absent());
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found =
        std::find_if(parameters.begin(), parameters.end(),
                     [&name = name](const char* parameter) { return name == parameter; });
    if (found == parameters.end())
      fail("'", function.name, "' takes no argument '", name, "', or none that is implemented");
    Value& at = values[static_cast<std::size_t>(found - parameters.begin())];
    if (!at.is(Kind::absent)) fail("'", function.name, "' is given '", name, "' twice");
    at = value;
  }
  for (std::size_t i = 0; i < function.required; ++i)
    if (values[i].is(Kind::absent)) fail("'", function.name, "' is not given its argument ", i + 1);
  return function.call(context, values);
}

}  // namespace ostrakon::texts::jinja
