#include "calibrate/least_squares.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <set>

#include "calibrate/statistics.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

/// Least squares over the columns that are in `free`; the others are 0.
Vector solve_free(const Matrix& a, const Vector& b, const std::vector<bool>& free) {
  std::vector<Eigen::Index> columns;
  for (std::size_t i = 0; i < free.size(); ++i)
    if (free[i]) columns.push_back(static_cast<Eigen::Index>(i));
  Matrix part(a.rows(), static_cast<Eigen::Index>(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) part.col(static_cast<Eigen::Index>(i)) = a.col(columns[i]);
  const Vector solved = part.colPivHouseholderQr().solve(b);
  Vector x = Vector::Zero(a.cols());
  for (std::size_t i = 0; i < columns.size(); ++i) x(columns[i]) = solved(static_cast<Eigen::Index>(i));
  return x;
}

/// Moves x towards `wanted` until the first free unknown reaches 0, which then leaves the free set.
void step_back(Vector& x, const Vector& wanted, std::vector<bool>& free) {
  double share = 1;
  for (std::size_t i = 0; i < free.size(); ++i) {
    const auto at = static_cast<Eigen::Index>(i);
    if (free[i] && wanted(at) <= 0) share = std::min(share, x(at) / (x(at) - wanted(at)));
  }
  x += share * (wanted - x);
  for (std::size_t i = 0; i < free.size(); ++i) {
    const auto at = static_cast<Eigen::Index>(i);
    if (free[i] && x(at) <= 1e-15 * std::max(1.0, x.maxCoeff())) free[i] = false, x(at) = 0;
  }
}

bool all_positive(const Vector& x, const std::vector<bool>& free) {
  for (std::size_t i = 0; i < free.size(); ++i)
    if (free[i] && x(static_cast<Eigen::Index>(i)) <= 0) return false;
  return true;
}

/// Lawson and Hanson's active set on columns of unit length.
Vector nonnegative(const Matrix& a, const Vector& b) {
  const auto n = static_cast<std::size_t>(a.cols());
  std::vector<bool> free(n, false);
  Vector x = Vector::Zero(a.cols());
  for (std::size_t round = 0; round < 3 * n + 3; ++round) {
    const Vector gradient = a.transpose() * (b - a * x);
    Eigen::Index best = -1;
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = static_cast<Eigen::Index>(i);
      if (!free[i] && gradient(at) > 1e-12 * b.norm() && (best < 0 || gradient(at) > gradient(best))) best = at;
    }
    if (best < 0) break;
    free[static_cast<std::size_t>(best)] = true;
    Vector wanted = solve_free(a, b, free);
    for (std::size_t inner = 0; inner < n && !all_positive(wanted, free); ++inner) {
      step_back(x, wanted, free);
      wanted = solve_free(a, b, free);
    }
    x = wanted;
  }
  return x;
}

/// Every row divided by its value: residuals are relative. Columns are brought to unit length for the solver.
Vector solve_weighted(const std::vector<Equation>& equations, const std::vector<double>& weights) {
  const auto rows = static_cast<Eigen::Index>(equations.size());
  const auto columns = static_cast<Eigen::Index>(equations.front().coefficients.size());
  Matrix a(rows, columns);
  Vector b(rows);
  for (Eigen::Index i = 0; i < rows; ++i) {
    const Equation& equation = equations[static_cast<std::size_t>(i)];
    const double weight = std::sqrt(weights[static_cast<std::size_t>(i)]);
    for (Eigen::Index j = 0; j < columns; ++j) a(i, j) = weight * equation.coefficients[static_cast<std::size_t>(j)] / equation.value;
    b(i) = weight;
  }
  Vector lengths = a.colwise().norm();
  for (Eigen::Index j = 0; j < columns; ++j) {
    if (lengths(j) == 0) lengths(j) = 1;
    a.col(j) /= lengths(j);
  }
  return nonnegative(a, b).cwiseQuotient(lengths);
}

double residual(const Equation& equation, const std::vector<double>& unknowns) {
  double predicted = 0;
  for (std::size_t i = 0; i < unknowns.size(); ++i) predicted += equation.coefficients[i] * unknowns[i];
  return predicted / equation.value - 1;
}

/// Tukey's biweight of every residual.
std::vector<double> robust_weights(const std::vector<Equation>& equations, const std::vector<double>& unknowns) {
  std::vector<double> residuals, sizes;
  for (const Equation& equation : equations) residuals.push_back(residual(equation, unknowns));
  for (double r : residuals) sizes.push_back(std::abs(r));
  const double width = 4.685 * std::max(1.4826 * median(sizes), 1e-6);
  std::vector<double> weights;
  for (double r : residuals) {
    const double share = 1 - (r / width) * (r / width);
    weights.push_back(share > 0 ? share * share : 1e-9);
  }
  return weights;
}

/// Length of each piece of a line that lies below `size`.
Equation pieces_below(double size, double seconds, const std::vector<double>& knots) {
  Equation equation{{1.0}, seconds};
  double from = 0;
  for (double knot : knots) {
    equation.coefficients.push_back(std::clamp(size - from, 0.0, knot - from));
    from = knot;
  }
  equation.coefficients.push_back(std::max(0.0, size - from));
  return equation;
}

KinkedLine line_with(const std::vector<TimedSize>& points, const std::vector<double>& knots) {
  std::vector<Equation> equations;
  for (const TimedSize& point : points) equations.push_back(pieces_below(point.size, point.seconds, knots));
  const std::vector<double> found = fit_nonnegative(equations);
  return {found.front(), knots, {found.begin() + 1, found.end()}, relative_error(equations, found)};
}

/// Bayesian information criterion of a line: n·ln(mean square) + unknowns·ln(n). A kink is two unknowns: its place and a slope.
double criterion(const KinkedLine& line, std::size_t n) {
  const double points = static_cast<double>(n);
  return points * std::log(line.error * line.error + 1e-10) + (2 + 2 * static_cast<double>(line.knots.size())) * std::log(points);
}

/// The best place for one more knot among the sizes, leaving two sizes on either side of every knot.
KinkedLine with_one_more(const std::vector<TimedSize>& points, const std::vector<double>& sizes, const KinkedLine& line) {
  KinkedLine best = line;
  best.error = HUGE_VAL;
  for (std::size_t i = 1; i + 1 < sizes.size(); ++i) {
    std::vector<double> knots = line.knots;
    if (std::find(knots.begin(), knots.end(), sizes[i]) != knots.end()) continue;
    knots.push_back(sizes[i]);
    std::sort(knots.begin(), knots.end());
    KinkedLine candidate = line_with(points, knots);
    if (candidate.error < best.error) best = std::move(candidate);
  }
  return best;
}

}  // namespace

std::vector<double> fit_nonnegative(const std::vector<Equation>& equations) {
  if (equations.empty() || equations.size() < equations.front().coefficients.size())
    fail("there are fewer samples than constants to fit", {}, "measure more sizes");
  std::vector<double> weights(equations.size(), 1.0), unknowns;
  constexpr int kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    const Vector x = solve_weighted(equations, weights);
    unknowns.assign(x.data(), x.data() + x.size());
    weights = robust_weights(equations, unknowns);
  }
  return unknowns;
}

double relative_error(const std::vector<Equation>& equations, const std::vector<double>& unknowns) {
  double sum = 0;
  for (const Equation& equation : equations) sum += residual(equation, unknowns) * residual(equation, unknowns);
  return std::sqrt(sum / static_cast<double>(equations.size()));
}

double KinkedLine::at(double size) const {
  const Equation pieces = pieces_below(size, 1, knots);
  double time = start;
  for (std::size_t i = 0; i < slopes.size(); ++i) time += slopes[i] * pieces.coefficients[i + 1];
  return time;
}

KinkedLine fit_kinked_line(const std::vector<TimedSize>& points, std::size_t most_kinks) {
  std::set<double> distinct;
  for (const TimedSize& point : points) distinct.insert(point.size);
  if (distinct.size() < 2) fail("a line needs two sizes at least");
  const std::vector<double> sizes(distinct.begin(), distinct.end());
  KinkedLine best = line_with(points, {}), grown = best;
  for (std::size_t kinks = 1; kinks <= most_kinks && sizes.size() >= 2 * kinks + 2; ++kinks) {
    grown = with_one_more(points, sizes, grown);
    if (criterion(grown, points.size()) < criterion(best, points.size())) best = grown;
  }
  return best;
}

}  // namespace plimsoll::calibrate
