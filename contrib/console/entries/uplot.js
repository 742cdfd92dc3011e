// The charts of the overview.
export { default as uPlot } from "uplot";
