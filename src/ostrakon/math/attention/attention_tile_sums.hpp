// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exponentials and the sums of products for attention in tiles, for one set of vector instructions:
// for attention_tile_kernel.hpp alone.

#include <ostrakon/math/attention/attention_tiles.hpp>

namespace ostrakon::math {
namespace {

/// The numbers 0, 1, 2 and so on, one for each query or key of a tile.
struct TileIndices {
  float at[attention_tile] = {};
  constexpr TileIndices() {
    for (int i = 0; i < attention_tile; ++i) at[i] = static_cast<float>(i);
  }
};
constexpr TileIndices tile_indices;

/// I: the instructions.
template <class I>
struct AttentionTileSums {
  using Vector = typename I::Vector;
  static constexpr std::int64_t width = I::width;

  static constexpr float log2_e = 1.44269504088896f;

  /// Returns 2^x within 2 units in the last place, for x < 128; 0 below 2^-126. NaN gives NaN.
  static Vector exp2(Vector x) {
    x = I::larger(I::broadcast(-127.0f), x);
    // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    const Vector shifter = I::broadcast(12582912.0f + 127.0f);
    const Vector shifted = I::add(x, shifter);
    const Vector r = I::subtract(x, I::subtract(shifted, shifter));
    Vector p = I::broadcast(0x1.5bba12p-10f);
    p = I::multiply_add(p, r, I::broadcast(0x1.3cea88p-7f));
    p = I::multiply_add(p, r, I::broadcast(0x1.c6b752p-5f));
    p = I::multiply_add(p, r, I::broadcast(0x1.ebf9bcp-3f));
    p = I::multiply_add(p, r, I::broadcast(0x1.62e42ap-1f));
    p = I::multiply_add(p, r, I::broadcast(1.0f));
    return I::multiply(p, I::power_of_low_bits(shifted));
  }

  /// Returns tanh(x) within 8 units in the last place, as m / (m + 2) with m = e^2x - 1 = (2^n - 1)
  /// + 2^n (2^r - 1), where nothing cancels. NaN gives NaN.
  static Vector tanh(Vector x) {
    const Vector limit = I::broadcast(-32.0f);  // beyond, the result is -1 or 1
    Vector y = I::larger(limit, I::multiply(x, I::broadcast(2.0f * log2_e)));
    y = I::subtract(I::zero(), I::larger(limit, I::subtract(I::zero(), y)));
    const Vector shifter = I::broadcast(12582912.0f + 127.0f);
    const Vector shifted = I::add(y, shifter);
    const Vector r = I::subtract(y, I::subtract(shifted, shifter));
    Vector p = I::broadcast(0x1.5bba12p-10f);
    p = I::multiply_add(p, r, I::broadcast(0x1.3cea88p-7f));
    p = I::multiply_add(p, r, I::broadcast(0x1.c6b752p-5f));
    p = I::multiply_add(p, r, I::broadcast(0x1.ebf9bcp-3f));
    p = I::multiply_add(p, r, I::broadcast(0x1.62e42ap-1f));
    const Vector power = I::power_of_low_bits(shifted);
    const Vector m =
        I::multiply_add(I::multiply(p, r), power, I::subtract(power, I::broadcast(1.0f)));
    return I::divide(m, I::add(m, I::broadcast(2.0f)));
  }

  /// Replaces products by scores in vectors [first, last) of a row, see ChangedScores; the distance
  /// of element i is `distance` + i * `step`. Writes the derivatives of capped scores, if that is
  /// not null.
  template <class Tile>
  static void make_scores(const Tile& t, float* scores, float* derivatives, std::int64_t first,
                          std::int64_t last, std::int64_t distance, int step) {
    const Vector scale = I::broadcast(t.soft_cap > 0 ? t.scale / t.soft_cap : t.scale);
    const Vector cap = I::broadcast(t.soft_cap), slope = I::broadcast(-t.slope);
    const Vector from = I::broadcast(static_cast<float>(distance));
    const Vector apart = I::broadcast(static_cast<float>(step));
    for (std::int64_t i = first; i < last; i += width) {
      Vector x = I::multiply(I::load(scores + i), scale);
      if (t.soft_cap > 0) {
        const Vector capped = tanh(x);
        x = I::multiply(capped, cap);
        if (derivatives != nullptr)
          I::store(derivatives + i,
                   I::multiply_add(I::subtract(I::zero(), capped), capped, I::broadcast(1.0f)));
      }
      const Vector far = I::multiply_add(apart, I::load(tile_indices.at + i), from);
      I::store(scores + i, I::multiply_add(slope, far, x));
    }
  }

  // Policies for the sums of a product: begin() returns the initial value of a vector of sums,
  // end() receives the sums. `At`: row and vector within the tile of registers, set by moved().

  /// C = A B.
  struct Store {
    float* c;
    std::int64_t c_row;
    Vector begin(int, int) const { return I::zero(); }
    void end(int row, int vector, Vector sum) const {
      I::store(c + row * c_row + vector * width, sum);
    }
    Store moved(std::int64_t row, std::int64_t vector) const {
      return {c + row * c_row + vector * width, c_row};
    }
  };

  /// C += A B.
  struct Add : Store {
    Vector begin(int row, int vector) const {
      return I::load(this->c + row * this->c_row + vector * width);
    }
    Add moved(std::int64_t row, std::int64_t vector) const { return {Store::moved(row, vector)}; }
  };

  /// C = C * factor + A B, with a factor for each row.
  struct Rescale : Store {
    const float* factor;
    Vector begin(int row, int vector) const {
      return I::multiply(I::broadcast(factor[row]),
                         I::load(this->c + row * this->c_row + vector * width));
    }
    Rescale moved(std::int64_t row, std::int64_t vector) const {
      return {Store::moved(row, vector), factor + row};
    }
  };

  /// C = A B; also updates the largest element of each column.
  struct StoreLargest : Store {
    float* largest;
    void end(int row, int vector, Vector sum) const {
      Store::end(row, vector, sum);
      I::store(largest + vector * width, I::larger(sum, I::load(largest + vector * width)));
    }
    StoreLargest moved(std::int64_t row, std::int64_t vector) const {
      return {Store::moved(row, vector), largest + vector * width};
    }
  };

  /// C = e^(scale A B - shift), with a shift for each row. It rounds as forward does, so that large
  /// scores have the same difference to the largest score.
  struct Probabilities : Store {
    float scale;
    const float* shift;
    void end(int row, int vector, Vector sum) const {
      const Vector score = I::multiply(sum, I::broadcast(scale));
      Store::end(
          row, vector,
          exp2(I::multiply(I::subtract(score, I::broadcast(shift[row])), I::broadcast(log2_e))));
    }
    Probabilities moved(std::int64_t row, std::int64_t vector) const {
      return {Store::moved(row, vector), scale, shift + row};
    }
  };

  /// C = P (A B - delta), with a delta for each row.
  struct ScoreGradients : Store {
    const float* p;  ///< shape of C
    const float* delta;
    void end(int row, int vector, Vector sum) const {
      Store::end(row, vector,
                 I::multiply(I::load(p + row * this->c_row + vector * width),
                             I::subtract(sum, I::broadcast(delta[row]))));
    }
    ScoreGradients moved(std::int64_t row, std::int64_t vector) const {
      return {Store::moved(row, vector), p + row * this->c_row + vector * width, delta + row};
    }
  };

  /// Stores ScoreGradients times what C has before: the derivative of capped scores.
  struct CappedScoreGradients : ScoreGradients {
    void end(int row, int vector, Vector sum) const {
      const Vector derivative = I::load(this->c + row * this->c_row + vector * width);
      const Vector probability = I::load(this->p + row * this->c_row + vector * width);
      Store::end(row, vector,
                 I::multiply(I::multiply(probability, derivative),
                             I::subtract(sum, I::broadcast(this->delta[row]))));
    }
    CappedScoreGradients moved(std::int64_t row, std::int64_t vector) const {
      return {ScoreGradients::moved(row, vector)};
    }
  };
};

}  // namespace
}  // namespace ostrakon::math
