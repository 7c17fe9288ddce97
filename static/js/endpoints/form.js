// The create and edit form, where it is open: checks on leaving a field, sums, rows that come and go.
import "./form_checks.js";
import "./form_latest.js";
import "./form_rows.js";
import "./form_sums.js";
