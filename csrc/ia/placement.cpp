#include "ia/placement.h"

#include <algorithm>
#include <charconv>

namespace joinsum::ia {
namespace {

int64_t size_of_axes(const Grid& grid, const Dims& axes) {
  int64_t size = 1;
  for (const int64_t a : axes) size *= grid.axes[a];
  return size;
}

/// Mixed-radix number of the coordinates on `axes`.
int64_t part_at(const Grid& grid, const Dims& coordinates, const Dims& axes) {
  int64_t part = 0;
  for (const int64_t a : axes) part = part * grid.axes[a] + coordinates[a];
  return part;
}

std::string state_text(const AxisState& state, const Dims& frontier) {
  if (std::holds_alternative<Replicated>(state)) return "*";
  if (const auto* pending = std::get_if<Pending>(&state)) return "+" + pending->kernel;
  const auto& split = std::get<Split>(state);
  std::string out = std::to_string(split.dim);
  const bool plain = split.dim < static_cast<int64_t>(frontier.size()) && frontier[split.dim] == split.domain;
  return plain ? out : out + ":" + std::to_string(split.domain);
}

AxisState parse_state(Scanner& scanner, const Dims& frontier) {
  if (scanner.accept("*")) return Replicated{};
  if (scanner.accept("+")) return Pending{scanner.name()};
  const int64_t dim = scanner.integer();
  if (dim < 0 || dim >= static_cast<int64_t>(frontier.size()))
    scanner.fail("split by a key dimension that is not there");
  const int64_t domain = scanner.accept(":") ? scanner.integer() : frontier[dim];
  return Split{dim, domain};
}

}  // namespace

Grid Grid::of_sites(int64_t sites) {
  JOINSUM_USER_CHECK(sites >= 1, "grid: at least one site: sites=", sites);
  Grid grid;
  for (int64_t prime = 2; prime * prime <= sites; ++prime) {
    for (; sites % prime == 0; sites /= prime) grid.axes.push_back(prime);
  }
  if (sites > 1) grid.axes.push_back(sites);
  return grid;
}

int64_t Grid::sites() const { return checked_product("grid", axes); }

Dims Grid::coordinates(int64_t site) const {
  Dims out(axes.size());
  for (int64_t a = rank() - 1; a >= 0; --a) {
    out[a] = site % axes[a];
    site /= axes[a];
  }
  return out;
}

int64_t Grid::site(const Dims& coordinates) const { return part_at(*this, coordinates, all_dims(rank())); }

std::vector<int64_t> Grid::numbers(const Dims& among) const {
  std::vector<int64_t> out(1, 0);
  int64_t weight = 1;
  for (int64_t axis = rank() - 1; axis >= 0; --axis) {
    const bool counts = position_of(among, axis).has_value();
    const size_t below = out.size();
    for (int64_t at = 1; at < axes[axis]; ++at) {
      for (size_t i = 0; i < below; ++i) out.push_back(out[i] + (counts ? at * weight : 0));
    }
    if (counts) weight *= axes[axis];
  }
  return out;
}

std::map<int64_t, std::vector<int64_t>> Grid::classes(const Dims& among) const {
  std::map<int64_t, std::vector<int64_t>> out;
  const std::vector<int64_t> number = numbers(among);
  for (int64_t site = 0; site < static_cast<int64_t>(number.size()); ++site) out[number[site]].push_back(site);
  return out;
}

std::string Grid::text() const {
  if (axes.empty()) return "1";
  std::string out;
  for (size_t a = 0; a < axes.size(); ++a) out += (a > 0 ? "x" : "") + std::to_string(axes[a]);
  return out;
}

Grid Grid::parse(Scanner& scanner) {
  constexpr int64_t kMostSites = 1'000'000;
  scanner.at_end();
  const size_t start = scanner.offset();
  const std::string text = scanner.raw_until(" \t\r\n(,:#");
  const char* const last = text.data() + text.size();
  Grid grid;
  for (const char* at = text.data();; ++at) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, last, size);
    if (error != std::errc() || size < 1 || size > kMostSites / grid.sites() || (next != last && *next != 'x')) {
      scanner.seek(start);
      scanner.fail(concatenate("expected a grid such as 2x2x3 of at most ", kMostSites, " sites"));
    }
    grid.axes.push_back(size);
    at = next;
    if (at == last) break;
  }
  if (grid.axes == Dims{1}) grid.axes.clear();
  return grid;
}

Placement Placement::replicated(const Grid& grid) {
  return GridPlacement{std::vector<AxisState>(grid.axes.size(), Replicated{})};
}

bool Placement::fully_replicated() const {
  return grid() != nullptr && axes_in<Replicated>().size() == grid()->states.size();
}

bool Placement::pending() const { return !axes_in<Pending>().empty(); }

std::optional<std::string> Placement::pending_kernel() const {
  const Dims axes = axes_in<Pending>();
  if (axes.empty()) return std::nullopt;
  return std::get<Pending>(grid()->states[axes[0]]).kernel;
}

bool Placement::keeps_together(const Dims& group) const {
  if (const auto* s = scattered()) {
    return s->together && std::all_of(s->together->begin(), s->together->end(),
                                      [&](int64_t dim) { return position_of(group, dim).has_value(); });
  }
  return std::all_of(grid()->states.begin(), grid()->states.end(), [&](const AxisState& state) {
    const auto* split = std::get_if<Split>(&state);
    return std::holds_alternative<Replicated>(state) || (split != nullptr && position_of(group, split->dim));
  });
}

Dims Placement::axes_splitting(int64_t dim) const {
  Dims out;
  for (const int64_t a : axes_in<Split>()) {
    if (std::get<Split>(grid()->states[a]).dim == dim) out.push_back(a);
  }
  return out;
}

Box Placement::box(const Grid& site_grid, int64_t site, const Dims& frontier) const {
  JOINSUM_CHECK(grid() != nullptr);
  Box box = Box::below(frontier);
  for (int64_t dim = 0; dim < box.arity(); ++dim) {
    int64_t parts = 1;
    int64_t part = 0;
    std::optional<int64_t> domain;
    int64_t sites_of_one = site_grid.sites();
    for (size_t a = 0; a < site_grid.axes.size(); ++a) {
      const int64_t size = site_grid.axes[a];
      sites_of_one /= size;
      const auto* split = std::get_if<Split>(&grid()->states[a]);
      if (split == nullptr || split->dim != dim) continue;
      part = part * size + site / sites_of_one % size;
      parts *= size;
      domain = split->domain;
    }
    if (!domain) continue;
    box.lower[dim] = std::min(frontier[dim], part_begin(*domain, parts, part));
    box.upper[dim] = std::min(frontier[dim], part_begin(*domain, parts, part + 1));
  }
  return box;
}

int64_t Placement::owner(const Grid& site_grid, const Key& key) const {
  JOINSUM_CHECK(grid() != nullptr);
  Dims coordinates(site_grid.axes.size(), 0);
  for (size_t dim = 0; dim < key.size(); ++dim) {
    const Dims axes = axes_splitting(static_cast<int64_t>(dim));
    if (axes.empty()) continue;
    const auto& split = std::get<Split>(grid()->states[axes[0]]);
    int64_t part = part_of(split.domain, size_of_axes(site_grid, axes), key[dim]);
    for (auto a = axes.rbegin(); a != axes.rend(); ++a) {
      coordinates[*a] = part % site_grid.axes[*a];
      part /= site_grid.axes[*a];
    }
  }
  return site_grid.site(coordinates);
}

std::string Placement::text(const Dims& frontier) const {
  if (const auto* s = scattered()) return s->together ? concatenate("(scattered", *s->together, ")") : "(scattered)";
  std::string out = "(";
  for (size_t a = 0; a < grid()->states.size(); ++a)
    out += (a > 0 ? ", " : "") + state_text(grid()->states[a], frontier);
  return out + ")";
}

Placement Placement::parse(Scanner& scanner, const Grid& site_grid, const Dims& frontier) {
  scanner.expect("(");
  GridPlacement placement;
  if (!scanner.peek(")")) {
    do {
      placement.states.push_back(parse_state(scanner, frontier));
    } while (scanner.accept(","));
  }
  scanner.expect(")");
  if (static_cast<int64_t>(placement.states.size()) != site_grid.rank()) {
    scanner.fail(concatenate("a placement has one state per grid axis: states=", placement.states.size(),
                             ", grid=", site_grid.text()));
  }
  return placement;
}

Dims differing_axes(const GridPlacement& a, const GridPlacement& b) {
  Dims out;
  for (size_t axis = 0; axis < a.states.size(); ++axis) {
    if (!(a.states[axis] == b.states[axis])) out.push_back(static_cast<int64_t>(axis));
  }
  return out;
}

GridPlacement fill(const Grid& grid, const Dims& dims, const Dims& frontier) {
  check_dims("shuffle", "dims", dims, static_cast<int64_t>(frontier.size()));
  JOINSUM_USER_CHECK(!dims.empty() || grid.axes.empty(),
                     "shuffle: no key dimension to split by; broadcast instead: dims=", dims);
  GridPlacement placement;
  for (size_t a = 0; a < grid.axes.size(); ++a) {
    const int64_t dim = dims[a % dims.size()];
    placement.states.push_back(Split{dim, frontier[dim]});
  }
  return placement;
}

}  // namespace joinsum::ia
