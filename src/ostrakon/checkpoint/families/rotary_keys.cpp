// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>
#include <utility>

namespace ostrakon::checkpoint::keys {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;
using math::RotaryScaling;
using model::DecoderSettings;

constexpr const char* whole_heads = "this family rotates whole heads";
constexpr const char* scalings_why =
    "this program scales rotary frequencies as linear, llama3, yarn and longrope";

/// A number that several keys may hold, which must agree.
class Agreed {
 public:
  void add(const std::string& key, double value) {
    words_ += text(words_.empty() ? "" : ", ", key, " is ", Json(value).dump());
    agree_ = agree_ && (!is_set_ || value == value_);
    value_ = value;
    is_set_ = true;
  }
  bool is_set() const { return is_set_; }
  double value() const { return value_; }
  const std::string& words() const { return words_; }
  void require_one(ConfigReading& reading, const char* what) const {
    if (!agree_) reading.problems.push_back(words_ + "; expected one " + what);
  }

 private:
  std::string words_;
  double value_ = 0.0;
  bool is_set_ = false, agree_ = true;
};

/// Reads one object of rotary settings, rope_scaling or rope_parameters or a part of one.
class RopeObject {
 public:
  RopeObject(ConfigReading& reading, std::string name, const Json& object, const Rope& rope)
      : reading_(reading), name_(std::move(name)), object_(object), rope_(rope) {}

  void read(Agreed& theta, Agreed& share, Agreed& alpha) {
    used_ = {"type", "rope_type"};
    if (rope_.has_axes) used_.insert({"mrope_interleaved", "mrope_section"});
    if (has("rope_theta")) theta.add(name_ + ".rope_theta", number("rope_theta"));
    if (has("partial_rotary_factor")) {
      const double value = number("partial_rotary_factor");
      if (rope_.share_name == nullptr && value != 1.0) problem(whole_heads);
      if (rope_.share_name != nullptr) share.add(name_ + ".partial_rotary_factor", value);
    }
    math::RotarySettings scaled = reading_.model.rotary;
    const std::string type = this->type();
    if (type == "default") {
      scaled.scaling = RotaryScaling::none;
    } else if (type == "linear") {
      scaled.factor = number("factor");
      // Frequencies divided by 1 are not scaled.
      scaled.scaling = scaled.factor == 1.0 ? RotaryScaling::none : RotaryScaling::linear;
    } else if (type == "llama3") {
      scaled.scaling = RotaryScaling::llama3;
      scaled.factor = number("factor");
      scaled.low_factor = number("low_freq_factor");
      scaled.high_factor = number("high_freq_factor");
      scaled.original_length = original_length();
    } else if (type == "yarn" && !has("short_factor")) {
      read_yarn(scaled);
    } else if (type == "longrope" || type == "su" || type == "yarn") {
      read_longrope(scaled);
    } else if (type == "dynamic" && rope_.has_alpha && has("alpha")) {
      alpha.add(name_ + ".alpha", number("alpha"));
      // The class reads no others, but published files have them.
      for (const char* other : {"beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim"})
        used_.insert(other);
    } else {
      return problem(scalings_why);
    }
    for (const auto& [key, value] : object_.items())
      if (!value.is_null() && used_.count(key) == 0)
        return problem(text("this program does not know its ", key, " with ", type));
    if (!missing_.empty()) return problem(text("it has no ", missing_, ", which ", type, " needs"));
    if (scaled.scaling != RotaryScaling::none) reading_.model.rotary = scaled;
  }

  std::string type() const {
    for (const char* name : {"rope_type", "type"})
      if (has(name)) return object_[name].is_string() ? object_[name].get<std::string>() : "?";
    return "default";
  }

 private:
  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  /// Returns a number that must be there.
  double number(const char* key) {
    used_.insert(key);
    if (!has(key)) {
      if (missing_.empty()) missing_ = key;
      return 1.0;
    }
    if (!object_[key].is_number()) reading_.refuse(top(), text("expected a number as its ", key));
    return object_[key].get<double>();
  }
  double number(const char* key, double missing) {
    used_.insert(key);
    return has(key) ? number(key) : missing;
  }

  std::vector<double> numbers(const char* key) {
    used_.insert(key);
    std::vector<double> all;
    const Json list = has(key) ? object_[key] : Json::array();
    for (const Json& one : list) {
      if (!one.is_number()) reading_.refuse(top(), text("expected numbers as its ", key));
      all.push_back(one.get<double>());
    }
    if (all.empty() && missing_.empty()) missing_ = key;
    return all;
  }

  std::int64_t original_length() {
    constexpr const char* key = "original_max_position_embeddings";
    used_.insert(key);
    const auto own = has(key) ? static_cast<std::int64_t>(number(key)) : std::int64_t{0};
    if (reading_.has(key)) {  // which counts before the object's own
      const std::int64_t beside = reading_.whole(key);
      if (own != 0 && own != beside)
        problem(text("its ", key, " is not that beside it, ", beside, "; expected one length"));
      return beside;
    }
    if (own != 0) return own;
    return rope_.original_length ? *rope_.original_length : reading_.positions;
  }

  /// Returns the factor, by default that of the longest sequences.
  double factor_of(const math::RotarySettings& scaled) {
    used_.insert("factor");
    if (has("factor")) return number("factor");
    return static_cast<double>(reading_.positions) / static_cast<double>(scaled.original_length);
  }

  void read_yarn(math::RotarySettings& scaled) {
    scaled.scaling = RotaryScaling::yarn;
    scaled.original_length = original_length();
    scaled.factor = factor_of(scaled);
    const auto or_default = [](double value, double missing) {
      return value == 0.0 ? missing : value;
    };
    scaled.beta_fast = or_default(number("beta_fast", 0.0), 32.0);
    scaled.beta_slow = or_default(number("beta_slow", 0.0), 1.0);
    used_.insert("truncate");
    if (has("truncate") && !object_["truncate"].is_boolean())
      reading_.refuse(top(), "expected true or false as its truncate");
    scaled.truncate = !has("truncate") || object_["truncate"].get<bool>();
    const double scale = number("mscale", 0.0), scale_of_all = number("mscale_all_dim", 0.0);
    const auto factor_by = [&](double m) {
      return scaled.factor <= 1.0 ? 1.0 : 0.1 * m * std::log(scaled.factor) + 1.0;
    };
    const bool has_scales = scale != 0.0 && scale_of_all != 0.0;
    scaled.attention_factor =
        number("attention_factor", has_scales ? factor_by(scale) / factor_by(scale_of_all) : 0.0);
    if (!rope_.scales_scores || scale_of_all == 0.0 || factor_by(scale_of_all) == 1.0) return;
    const double factor = factor_by(scale_of_all);
    reading_.model.attention_scale =
        factor * factor / std::sqrt(static_cast<double>(reading_.model.head_width()));
  }

  void read_longrope(math::RotarySettings& scaled) {
    scaled.scaling = RotaryScaling::longrope;
    scaled.original_length = original_length();
    scaled.factor = factor_of(scaled);
    scaled.attention_factor = number("attention_factor", 0.0);
    scaled.short_factors = numbers("short_factor");
    scaled.long_factors = numbers("long_factor");
  }

  std::string top() const { return name_.substr(0, name_.find('.')); }
  void problem(const std::string& why) { reading_.problem(top(), why); }

  ConfigReading& reading_;
  std::string name_;
  const Json& object_;
  const Rope& rope_;
  std::set<std::string> used_;  // keys that are known with this type
  std::string missing_;         // the first key that must be there and is not
};

/// Reads all keys of rotary settings.
class RopeReader {
 public:
  RopeReader(ConfigReading& reading, const Rope& rope) : reading_(reading), rope_(rope) {}

  void read() {
    if (reading_.has(rope_.theta_name))
      theta_.add(rope_.theta_name, reading_.number(rope_.theta_name));
    if (rope_.share_name != nullptr) {
      if (reading_.has(rope_.share_name))
        share_.add(rope_.share_name, reading_.number(rope_.share_name));
    } else if (reading_.has("partial_rotary_factor") &&
               reading_.number("partial_rotary_factor") != 1.0) {
      reading_.problem("partial_rotary_factor", whole_heads);
    }
    std::string scaling = reading_.is("rope_scaling");
    int objects = 0;
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      if (!reading_.has(name)) continue;
      if (!reading_.at(name).is_object()) reading_.refuse(name, "expected an object");
      scaling = reading_.is(name);
      read_object(name, reading_.at(name));
      ++objects;
    }
    if (objects == 0 && rope_.default_scaling != nullptr) {
      const Json missing = Json::parse(rope_.default_scaling);
      read_part("rope_scaling", missing);
      scaling = reading_.is("rope_scaling", shown_json(missing));
    }
    const auto is_full = [&](const char* name) {
      return reading_.has(name) && !reading_.at(name).empty();
    };
    if (is_full("rope_scaling") && is_full("rope_parameters") &&
        reading_.at("rope_scaling") != reading_.at("rope_parameters"))
      reading_.problem("rope_scaling", "rope_parameters is another; expected one of them");
    set_base();
    set_share();
    set_window_base();
    for (const char* deck_key :
         {"rotary_scaling", "rotary_factor", "rotary_original_length", "rotary_low_factor",
          "rotary_high_factor", "rotary_beta_fast", "rotary_beta_slow", "rotary_truncate",
          "rotary_attention_factor", "rotary_short_factors", "rotary_long_factors"})
      reading_.say(deck_key, scaling);
    if (rope_.scales_scores) reading_.say("attention_scale", scaling);
  }

 private:
  void read_part(const std::string& name, const Json& object) {
    RopeObject part(reading_, name, object, rope_);
    part.read(theta_, share_, alpha_);
  }

  /// Newer files may have an object for each type of layers.
  void read_object(const std::string& name, const Json& object) {
    constexpr const char *full = "full_attention", *within = "sliding_attention";
    const bool has_two = rope_.window_theta_name != nullptr || rope_.scales_full_layers_only;
    if (!object.contains(full) && !object.contains(within)) {
      if (has_two && name == "rope_parameters" && !object.empty())
        reading_.problem(name, text("this family has an object for each type of layers; expected ",
                                    full, " and ", within));
      return read_part(name, object);
    }
    for (const auto& [type, part] : object.items()) {
      const std::string part_name = name + "." + type;
      if (part.is_null() || (type == "rope_type" && part == "default")) continue;
      if (type == "rope_theta" && part.is_number()) {
        theta_.add(part_name, part.get<double>());
        continue;
      }
      if (!has_two || !part.is_object() || (type != full && type != within)) {
        reading_.problem(name, "this family has the same rotary positions in all layers");
      } else if (type == full) {
        read_part(part_name, part);
      } else {
        const math::RotarySettings before = reading_.model.rotary;
        reading_.model.rotary.scaling = RotaryScaling::none;
        Agreed unused_alpha;
        RopeObject(reading_, part_name, part, rope_).read(window_theta_, share_, unused_alpha);
        if (reading_.model.rotary.scaling != RotaryScaling::none)
          reading_.problem(name, "layers with a window have unscaled frequencies");
        reading_.model.rotary = before;
      }
    }
  }

  void set_base() {
    if (!theta_.is_set()) {
      reading_.model.rotary.base = rope_.theta;
      reading_.say("rotary_base", reading_.is(rope_.theta_name, Json(rope_.theta).dump()));
    } else {
      reading_.model.rotary.base = theta_.value();
      theta_.require_one(reading_, "base");
      reading_.say("rotary_base", theta_.words());
    }
    if (!alpha_.is_set()) return;
    const auto d = static_cast<double>(reading_.model.head_width());
    reading_.model.rotary.base *= std::pow(alpha_.value(), d / (d - 2.0));
    reading_.say("rotary_base", alpha_.words());
  }

  void set_share() {
    if (rope_.share_name == nullptr) return;
    reading_.model.rotary.share = share_.is_set() ? share_.value() : rope_.share;
    share_.require_one(reading_, "share");
    reading_.say("rotary_share", share_.is_set()
                                     ? share_.words()
                                     : reading_.is(rope_.share_name, Json(rope_.share).dump()));
  }

  void set_window_base() {
    DecoderSettings& model = reading_.model;
    if (const char* const name = rope_.window_theta_name; name != nullptr) {
      if (reading_.has(name)) window_theta_.add(name, reading_.number(name));
      if (!window_theta_.is_set()) {
        model.window_rotary_base = rope_.window_theta;
        return reading_.say("window_rotary_base",
                            reading_.is(name, Json(rope_.window_theta).dump()));
      }
    }
    if (!window_theta_.is_set() && !rope_.scales_full_layers_only) return;
    window_theta_.require_one(reading_, "base of layers with a window");
    // A base beside the objects is that of full layers alone.
    model.window_rotary_base = window_theta_.is_set() ? window_theta_.value() : rope_.theta;
    reading_.say("window_rotary_base",
                 window_theta_.is_set()
                     ? window_theta_.words()
                     : text("the base of layers with a window is ", rope_.theta));
    const bool is_same = model.window_rotary_base == model.rotary.base &&
                         model.rotary.scaling == RotaryScaling::none;
    if (is_same) model.window_rotary_base = 0.0;
  }

  ConfigReading& reading_;
  const Rope& rope_;
  Agreed theta_, share_, window_theta_, alpha_;
};

Ordered scaling_of(const math::RotarySettings& rotary) {
  if (rotary.scaling == RotaryScaling::none) return nullptr;
  Ordered to = {{"rope_type", name(rotary.scaling)}, {"factor", rotary.factor}};
  if (rotary.scaling == RotaryScaling::linear) return to;
  to["original_max_position_embeddings"] = rotary.original_length;
  if (rotary.scaling == RotaryScaling::llama3) {
    to["low_freq_factor"] = rotary.low_factor;
    to["high_freq_factor"] = rotary.high_factor;
    return to;
  }
  if (rotary.attention_factor != 0.0) to["attention_factor"] = rotary.attention_factor;
  if (rotary.scaling == RotaryScaling::yarn) {
    to["beta_fast"] = rotary.beta_fast;
    to["beta_slow"] = rotary.beta_slow;
    to["truncate"] = rotary.truncate;
  } else {
    to["short_factor"] = rotary.short_factors;
    to["long_factor"] = rotary.long_factors;
  }
  return to;
}

/// Adds what scales scores, too, to yarn's scaling, as DeepSeek has it: mscale_all_dim, and the
/// mscale with which both make the factor of sines and cosines, if that is not the default.
void add_scale_of_scores(const DecoderSettings& settings, Ordered& scaling) {
  const math::RotarySettings& rotary = settings.rotary;
  const bool is_yarn = rotary.scaling == RotaryScaling::yarn && rotary.factor > 1.0;
  if (!is_yarn || settings.attention_scale == 0.0) return;
  const double root = std::sqrt(static_cast<double>(settings.head_width()));
  const double of_all = std::sqrt(settings.attention_scale * root);
  const double per_scale = 0.1 * std::log(rotary.factor);
  scaling["mscale_all_dim"] = (of_all - 1.0) / per_scale;
  if (rotary.attention_factor != 0.0)
    scaling["mscale"] = (rotary.attention_factor * of_all - 1.0) / per_scale;
}

}  // namespace

Key rope(const Rope& rope) {
  Key key{{rope.theta_name, "rope_scaling", "rope_parameters", "partial_rotary_factor"}};
  if (rope.share_name != nullptr) key.names.emplace_back(rope.share_name);
  if (rope.window_theta_name != nullptr) key.names.emplace_back(rope.window_theta_name);
  if (rope.original_length) key.names.emplace_back("original_max_position_embeddings");
  key.deck_keys = {{rope.theta_name, {"rotary_base"}},
                   {"rope_scaling", {"rotary_scaling"}},
                   {"partial_rotary_factor", {"rotary_share"}},
                   {"original_max_position_embeddings", {"rotary_original_length"}}};
  if (rope.share_name != nullptr) key.deck_keys[rope.share_name] = {"rotary_share"};
  if (rope.window_theta_name != nullptr)
    key.deck_keys[rope.window_theta_name] = {"window_rotary_base"};
  key.read = [=](ConfigReading& reading) { RopeReader(reading, rope).read(); };
  key.write = [=](const DecoderSettings& settings, Ordered& to) {
    to[rope.theta_name] = settings.rotary.base;
    if (rope.share_name != nullptr) to[rope.share_name] = settings.rotary.share;
    if (rope.window_theta_name != nullptr)
      to[rope.window_theta_name] =
          settings.window_rotary_base > 0.0 ? settings.window_rotary_base : settings.rotary.base;
    Ordered scaling = scaling_of(settings.rotary);
    if (rope.scales_scores) add_scale_of_scores(settings, scaling);
    // A missing object, or null, would have the default.
    if (scaling.is_null() && rope.default_scaling != nullptr) scaling = {{"rope_type", "default"}};
    to["rope_scaling"] = scaling;
    if (rope.original_length && settings.rotary.original_length > 0)
      to["original_max_position_embeddings"] = settings.rotary.original_length;
  };
  return key;
}

}  // namespace ostrakon::checkpoint::keys
