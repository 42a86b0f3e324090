#pragma once

#include <array>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "kernels/torch_call/normed_rows.h"

namespace joinsum::kernels::torch_call {

/// Rows in pieces, which threads go through in any order: what is added up is the same for any number of them.

/// The rows of `x`, of each of which `numbers` has one: its axes are those of `x`, the last ones with one element.
inline std::optional<Rows> rows_of(const at::Tensor& x, const at::Tensor& numbers) {
  if (x.dim() != numbers.dim()) return {};
  Rows all;
  int64_t common = x.dim();
  while (common > 0 && numbers.size(common - 1) == 1) all.length *= x.size(--common);
  all.count = numbers.numel();
  const bool same = x.sizes().slice(0, common) == numbers.sizes().slice(0, common);
  return same ? std::optional(all) : std::nullopt;
}

/// The rows of `x` [n, c, *s], one for each sample and channel, where `numbers` has one for each channel and rows are
/// long enough for loops over them: row number r is of channel r modulo c.
inline std::optional<Rows> rows_of_channels(const at::Tensor& x, const at::Tensor& numbers) {
  constexpr int64_t kShortest = 16;
  if (x.dim() < 3 || x.numel() == 0 || numbers.numel() != x.size(1)) return {};
  if (numbers.dim() != 1 && (numbers.dim() != x.dim() || numbers.size(1) != x.size(1))) return {};
  Rows all;
  all.count = x.size(0) * x.size(1);
  all.length = x.numel() / all.count;
  return all.length < kShortest ? std::nullopt : std::optional(all);
}

/// Elements that a processor's cache holds.
constexpr int64_t kPiece = 8'192;

/// Adjacent elements of a row.
struct Piece {
  int64_t row;
  int64_t begin;  ///< in the row
  int64_t at;     ///< among all elements
  int64_t count;
};

/// Calls `visit` with all pieces of all rows, in threads.
template <class Visit>
void for_each_piece(const Rows& all, Visit visit) {
  const int64_t pieces = (all.length + kPiece - 1) / kPiece;
  threads::for_each_range(all.count * pieces, rows_per_thread(std::min(all.length, kPiece)), [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      const int64_t row = i / pieces;
      const int64_t begin = i % pieces * kPiece;
      visit(Piece{row, begin, row * all.length + begin, std::min(kPiece, all.length - begin)});
    }
  });
}

/// Numbers that are added up, in double precision from one piece to the next.
template <size_t n>
using Sums = std::array<double, n>;

/// Calls `store` with the number of each of `outputs` results and the sums over the pieces of its rows, which
/// `of_piece` gives; row number r is of result number r modulo `outputs`.
template <size_t n, class OfPiece, class Store>
void sum_rows(const Rows& all, int64_t outputs, OfPiece of_piece, Store store) {
  const int64_t pieces = (all.length + kPiece - 1) / kPiece;
  std::vector<Sums<n>> partial(static_cast<size_t>(all.count * pieces));
  for_each_piece(all, [&](const Piece& piece) {
    partial[static_cast<size_t>(piece.row * pieces + piece.begin / kPiece)] = of_piece(piece);
  });
  const int64_t terms = outputs == 0 ? 0 : all.count / outputs * pieces;
  threads::for_each_range(outputs, rows_per_thread(terms), [&](int64_t begin, int64_t end) {
    for (int64_t output = begin; output < end; ++output) {
      Sums<n> total{};
      for (int64_t row = output; row < all.count; row += outputs) {
        for (int64_t i = row * pieces; i < (row + 1) * pieces; ++i) {
          for (size_t each = 0; each < n; ++each) total[each] += partial[static_cast<size_t>(i)][each];
        }
      }
      store(output, total);
    }
  });
}

}  // namespace joinsum::kernels::torch_call
