// SPDX-License-Identifier: Apache-2.0

// Keys of what some layers have and others have not.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::keys {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;
using model::DecoderSettings;
using model::LayerPattern;

constexpr const char *full = "full_attention", *within = "sliding_attention",
                     *linear = "linear_attention";

/// The pattern of the layers for which `has` returns true.
template <class Has>
LayerPattern pattern_of(std::int64_t layers, const Has& has) {
  std::vector<bool> all;
  for (std::int64_t l = 0; l < layers; ++l) all.push_back(has(l));
  return LayerPattern::of(all);
}

LayerPattern no_layers() { return *LayerPattern::parse("none"); }

/// Whether all entries of layer_types have this value.
bool are_all(const Json& types, const char* type) {
  return types.is_array() &&
         std::all_of(types.begin(), types.end(), [&](const Json& one) { return one == type; });
}

/// Sets window_layers, and returns the words for it.
std::string read_window_layers(ConfigReading& reading, const Window& window) {
  DecoderSettings& model = reading.model;
  if (window.has_types && reading.has("layer_types")) {
    const Json& types = reading.of_layers("layer_types");
    for (const Json& type : types)
      if (type != full && type != within)
        reading.problem("layer_types", text("expected ", full, " or ", within));
    model.window_layers = pattern_of(
        model.layers, [&](std::int64_t l) { return types[static_cast<std::size_t>(l)] == within; });
    return reading.is("layer_types");
  }
  if (window.layers == Window::Layers::without_rotary) {
    model.window_layers =
        pattern_of(model.layers, [&](std::int64_t l) { return !model.rotary_layers.has(l); });
    return reading.is("no_rope_layers");
  }
  if (window.layers == Window::Layers::from_max_window_layers) {
    constexpr const char* name = "max_window_layers";
    const std::int64_t first = reading.has(name) ? reading.whole(name, 0) : 28;
    model.window_layers = pattern_of(model.layers, [&](std::int64_t l) { return l >= first; });
    return reading.is(name, "28");
  }
  constexpr const char* name = "sliding_window_pattern";
  const bool has_own = window.has_pattern && reading.has(name);
  const std::int64_t period = has_own ? reading.whole(name) : window.period;
  model.window_layers = pattern_of(
      model.layers, [&](std::int64_t l) { return period == 0 || (l + 1) % period != 0; });
  return window.has_pattern ? reading.is(name, text(period)) : reading.is("sliding_window");
}

std::optional<std::int64_t> read_size(ConfigReading& reading, const Window& window) {
  const bool is_on = !window.has_switch ||
                     (reading.has("use_sliding_window") && reading.flag("use_sliding_window"));
  if (!is_on) {
    reading.say("attention_window", reading.is("use_sliding_window", "false"));
    return std::nullopt;
  }
  reading.say("attention_window",
              reading.is("sliding_window", window.size ? text(*window.size) : "null"));
  if (reading.has("sliding_window")) return reading.whole("sliding_window");
  return reading.is_there("sliding_window") ? std::nullopt : window.size;
}

void read_window(ConfigReading& reading, const Window& window) {
  DecoderSettings& model = reading.model;
  const std::optional<std::int64_t> size = read_size(reading, window);
  model.attention_window = size.value_or(0);
  const std::string words = read_window_layers(reading, window);
  reading.say("window_layers", words);
  if (window.rotates_within || window.rotates_all_without) {
    reading.say("rotary_layers", words);
    model.rotary_layers = size                    ? model.window_layers
                          : window.rotates_within ? no_layers()
                                                  : LayerPattern();
  }
  const Json& types = reading.at("layer_types");
  if (!size && types.is_array() &&
      std::find(types.begin(), types.end(), Json(within)) != types.end())
    reading.problem("layer_types", "no window is said for these layers; expected sliding_window");
  if (!window.has_types && reading.has("layer_types") &&
      !are_all(reading.at("layer_types"), size ? within : full))
    reading.problem("layer_types",
                    text("this family has ", size ? within : full, " in all layers"));
  if (!size || model.window_layers.count(model.layers) == 0) {
    model.attention_window = 0;
    model.window_layers = LayerPattern();
  }
}

void write_window(const DecoderSettings& settings, const Window& window, Ordered& to) {
  const bool has_window = settings.attention_window > 0;
  if (window.has_switch) to["use_sliding_window"] = has_window;
  to["sliding_window"] = has_window ? Ordered(settings.attention_window) : Ordered();
  std::vector<std::string> types;
  std::int64_t first = settings.layers;
  for (std::int64_t l = settings.layers - 1; l >= 0; --l) {
    const bool is_within = settings.block_kind(l).has_window;
    types.emplace_back(is_within ? within : full);
    if (is_within) first = l;
  }
  std::reverse(types.begin(), types.end());
  if (window.layers == Window::Layers::from_max_window_layers) to["max_window_layers"] = first;
  if (window.has_types) to["layer_types"] = types;
}

}  // namespace

Key window(const Window& window) {
  Key key{{"sliding_window", "use_sliding_window", "layer_types"},
          {{"sliding_window", {"attention_window"}},
           {"sliding_window_pattern", {"window_layers"}},
           {"max_window_layers", {"window_layers"}}}};
  if (window.layers == Window::Layers::from_max_window_layers)
    key.names.emplace_back("max_window_layers");
  if (window.has_pattern) key.names.emplace_back("sliding_window_pattern");
  key.read = [=](ConfigReading& reading) { read_window(reading, window); };
  key.write = [=](const DecoderSettings& settings, Ordered& to) {
    write_window(settings, window, to);
  };
  return key;
}

Key no_window() {
  Key key{{"layer_types"}};
  key.read = [](ConfigReading& reading) {
    if (reading.has("layer_types") && !are_all(reading.at("layer_types"), full))
      reading.problem("layer_types", text("this family has ", full, " in all layers"));
  };
  return key;
}

Key delta_layers(int interval) {
  constexpr const char *list = "layer_types", *every = "full_attention_interval";
  Key key{{list, every}};
  key.read = [=](ConfigReading& reading) {
    DecoderSettings& model = reading.model;
    const bool has_list = reading.has(list);
    const Json types = has_list ? reading.of_layers(list) : Json();
    for (const Json& type : types)
      if (type != full && type != linear)
        reading.problem(list, text("expected ", full, " or ", linear));
    const std::int64_t period = reading.has(every) ? reading.whole(every) : interval;
    model.delta_layers = pattern_of(model.layers, [&](std::int64_t l) {
      return has_list ? types[static_cast<std::size_t>(l)] == linear : (l + 1) % period != 0;
    });
    reading.say("delta_layers", has_list ? reading.is(list) : reading.is(every, text(interval)));
  };
  key.write = [=](const DecoderSettings& settings, Ordered& to) {
    std::vector<std::string> types;
    for (std::int64_t l = 0; l < settings.layers; ++l)
      types.emplace_back(settings.block_kind(l).has_delta_net ? linear : full);
    to[list] = types;
  };
  return key;
}

Key rotary_layers(int interval) {
  constexpr const char *list = "no_rope_layers", *every = "no_rope_layer_interval";
  Key key{{list, every}, {{list, {"rotary_layers"}}, {every, {"rotary_layers"}}}};
  key.read = [=](ConfigReading& reading) {
    DecoderSettings& model = reading.model;
    const bool has_list = reading.has(list);
    // An entry is 1 for a layer that has rotary positions.
    const Json flags = has_list ? reading.of_layers(list) : Json();
    const std::int64_t period = reading.has(every) ? reading.whole(every) : interval;
    model.rotary_layers = pattern_of(model.layers, [&](std::int64_t l) {
      return has_list ? flags[static_cast<std::size_t>(l)] != 0 : (l + 1) % period != 0;
    });
    reading.say("rotary_layers", has_list ? reading.is(list) : reading.is(every, text(interval)));
  };
  key.write = [=](const DecoderSettings& settings, Ordered& to) {
    std::vector<int> flags;
    for (std::int64_t l = 0; l < settings.layers; ++l)
      flags.push_back(settings.rotary_layers.has(l) ? 1 : 0);
    to[list] = flags;
  };
  return key;
}

Key first_dense(int missing) {
  constexpr const char* name = "first_k_dense_replace";
  Key key{{name}, {{name, {"expert_layers"}}}};
  key.read = [=](ConfigReading& reading) {
    const std::int64_t first = reading.has(name) ? reading.whole(name, 0) : missing;
    reading.model.expert_layers =
        pattern_of(reading.model.layers, [&](std::int64_t l) { return l >= first; });
    reading.say("expert_layers", reading.is(name, text(missing)));
  };
  key.write = [=](const DecoderSettings& settings, Ordered& to) {
    std::int64_t first = 0;
    while (first < settings.layers && !settings.expert_layers.has(first)) ++first;
    to[name] = first;
  };
  return key;
}

Key group_method() {
  constexpr const char *name = "topk_method", *all = "greedy", *limited = "group_limited_greedy";
  Key key{{name}};
  key.read = [=](ConfigReading& reading) {
    const std::string method = reading.has(name) ? reading.words(name) : all;
    if (method != all && method != limited)
      reading.problem(name, text("expected \"", all, "\" or \"", limited, "\""));
    if (method == limited) return;
    reading.model.experts.groups = reading.model.experts.groups_per_token = 1;
    reading.say("router_groups", reading.is(name, text("\"", all, "\"")));
  };
  key.write = [=](const DecoderSettings& settings, Ordered& to) {
    to[name] = settings.experts.groups > 1 ? limited : all;
  };
  return key;
}

Key sparse_step() {
  constexpr const char *step = "decoder_sparse_step", *dense = "mlp_only_layers";
  Key key{{step, dense}, {{step, {"expert_layers"}}, {dense, {"expert_layers"}}}};
  key.read = [=](ConfigReading& reading) {
    const std::int64_t every = reading.has(step) ? reading.whole(step) : 1;
    const Json without = reading.has(dense) ? reading.at(dense) : Json::array();
    if (!without.is_array()) reading.refuse(dense, "expected a list of layers");
    reading.model.expert_layers = pattern_of(reading.model.layers, [&](std::int64_t l) {
      return (l + 1) % every == 0 &&
             std::find(without.begin(), without.end(), Json(l)) == without.end();
    });
    reading.say("expert_layers", text(reading.is(step, "1"), ", ", reading.is(dense, "[]")));
  };
  key.write = [=](const DecoderSettings& settings, Ordered& to) {
    std::vector<std::int64_t> without;
    for (std::int64_t l = 0; l < settings.layers; ++l)
      if (!settings.expert_layers.has(l)) without.push_back(l);
    to[step] = 1;
    to[dense] = without;
  };
  return key;
}

}  // namespace ostrakon::checkpoint::keys
